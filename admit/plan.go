// Package admit decides which pods may run on a node and which pods have to be preempted for
// them, as the kubelet does. It is pure: it has no clock, and only reads from an fs.FS.
package admit

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Verdict is what was decided about a pod.
type Verdict string

// The verdicts.
const (
	Admitted  Verdict = "Admitted"
	Rejected  Verdict = "Rejected"
	Preempted Verdict = "Preempted"
	// Queued is a pod that waits until other pods of its run have ended (Options.Queue).
	Queued Verdict = "Queued"
)

// Reason is why a pod is rejected, in the kubelet's words.
type Reason struct {
	Reason  string `json:"reason"`  // for example OutOfcpu
	Message string `json:"message"` // for example "Node didn't have enough resource: cpu, ..."
}

// Decision is the verdict on one pod.
type Decision struct {
	Pod     *v1.Pod
	Verdict Verdict
	// Reason and Message are the first of Reasons, or those of the preemption. An admitted pod has them
	// if it will not start all the same, because it depends on one that is not admitted.
	Reason  string
	Message string
	Reasons []Reason
	// Place is the place of a queued pod among those that wait, from 1, and Lacks is what it waits for.
	Place int
	Lacks []string
	// By is the pod that preempts this one, and Lacked the first resource that it lacks without that, "" for none.
	By     *v1.Pod
	Lacked v1.ResourceName
	// Running says that an earlier run started the pod, which has not changed since. Earlier is
	// the pod as that run has left it, with its status.
	Running bool
	Earlier *v1.Pod
	// Replaces are the pods with the same namespace and name that must be stopped, before this one
	// starts if it does: those of earlier runs, and those that other runs are about to start. Each
	// has different content, or has ended and is run again. Usually there is one. A pod that runs
	// already replaces what should not be there besides it; of a pod that is not admitted, it is what
	// should not be there besides the one version that stays.
	Replaces []*v1.Pod
	// Prune says that the pod of an earlier run is no longer in the input and has to be
	// stopped because pruning was asked for. Its verdict is Admitted.
	Prune bool
	// DependsOn is what must be there before the pod starts.
	DependsOn []podspec.Dependency
}

// PreemptedBy returns the decision that a running pod is preempted by another one.
func PreemptedBy(pod, by *v1.Pod) Decision {
	return Decision{
		Pod: pod, Verdict: Preempted, Running: true, By: by, Reason: reasonPreempting, Message: messagePreempting,
		Reasons: []Reason{{reasonPreempting, messagePreempting}},
	}
}

// Runs says whether the pod is of the input and runs in the end: at once, or when there is room.
func (d Decision) Runs() bool {
	return (d.Verdict == Admitted || d.Verdict == Queued) && !d.Prune
}

// Again returns the pod as an earlier run has left it if it is run again, else nil.
func (d Decision) Again() *v1.Pod {
	if !d.Runs() || d.Running {
		return nil
	}
	for _, pod := range d.Replaces {
		if pod.UID == d.Pod.UID {
			return pod
		}
	}
	return nil
}

// Recreated says whether the pod is stopped and started although it has neither changed nor ended.
func (d Decision) Recreated() bool {
	again := d.Again()
	return again != nil && !podspec.Ended(again.Status.Phase)
}

// Plan is all decisions, made before anything is started or stopped.
type Plan struct {
	Node *v1.Node
	// Decisions holds one decision for each input pod in input order, then one for each
	// running pod of an earlier run that the plan stops (preempted or pruned).
	Decisions []Decision
	// Optimal says that every preemption has the best set of victims: no search was cut off.
	Optimal bool
	// Used is what all pods request that run once the plan is carried out, including those of
	// earlier runs that are not in the input.
	Used v1.ResourceList
	// Others have what is missing from the node's allocatable resources because of them.
	Others []Other
	// Queue is that of a run of the plan, with Options.Queue: the running pods have what they request, and
	// no other is in it yet.
	Queue *Queue
}

// Removal is a running pod that has to be stopped before anything is started.
type Removal struct {
	Pod *v1.Pod
	Row int     // of the decision that stops it
	By  *v1.Pod // the pod that preempts it; nil when there is another reason
	Why string  // in a few words
}

// Removals returns the pods that have to be stopped, in the order of their decisions.
func (p Plan) Removals() []Removal {
	var all []Removal
	for i, d := range p.Decisions {
		switch {
		case d.Verdict == Preempted && d.Running:
			all = append(all, Removal{d.Pod, i, d.By, "preempted"})
		case d.Verdict == Admitted && d.Prune:
			all = append(all, Removal{d.Pod, i, nil, "no longer in the input"})
		}
		for _, pod := range d.Replaces {
			all = append(all, Removal{pod, i, nil, d.whyReplaced(pod)})
		}
	}
	return all
}

// whyReplaced says in a few words why one of the pods of Replaces is stopped.
func (d Decision) whyReplaced(pod *v1.Pod) string {
	switch {
	case !d.Runs() || d.Running:
		return "a duplicate"
	case pod.UID == d.Pod.UID && !d.Recreated():
		return "run again"
	}
	return "replaced"
}

// Standing returns the plan for when all has stopped that it stops: its input pods, of which those
// that are admitted go on.
func (p Plan) Standing() Plan {
	rest := p
	rest.Decisions = nil
	for _, d := range p.Decisions {
		if !d.Prune {
			d.Running, d.Replaces = d.Verdict == Admitted, nil
			rest.Decisions = append(rest.Decisions, d)
		}
	}
	return rest
}

// Admitted returns the pods of the input that are to run, including those that already do.
func (p Plan) Admitted() []*v1.Pod {
	var pods []*v1.Pod
	for _, d := range p.Decisions {
		if d.Verdict == Admitted && !d.Prune {
			pods = append(pods, d.Pod)
		}
	}
	return pods
}

// Status returns the status that the kubelet would give a pod that is rejected
// (pkg/kubelet.rejectPod) or preempted (pkg/kubelet/preemption), and an empty one for an
// admitted or queued pod. The condition has no time, since this package has no clock.
func (d Decision) Status() v1.PodStatus {
	switch d.Verdict {
	case Rejected:
		return v1.PodStatus{Phase: v1.PodFailed, Reason: d.Reason, Message: "Pod was rejected: " + d.Message, QOSClass: podspec.QOS(d.Pod)}
	case Preempted:
		return v1.PodStatus{
			Phase: v1.PodFailed, Reason: d.Reason, Message: d.Message, QOSClass: podspec.QOS(d.Pod),
			Conditions: []v1.PodCondition{{
				Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonTerminationByKubelet,
				Message: "Pod was preempted by Kubelet to accommodate a critical pod.",
			}},
		}
	default:
		return v1.PodStatus{}
	}
}

// plan returns the decisions.
func (p *planner) plan() Plan {
	plan := Plan{Node: p.node.DeepCopy(), Optimal: p.optimal, Others: p.o.Others, Used: p.allocated.list(p.allocated.used)}
	var stopped []*entry
	for _, e := range p.input {
		d := Decision{Pod: e.pod, Verdict: Admitted, Running: e.running, Earlier: e.earlier}
		switch {
		case e.by != nil:
			d = PreemptedBy(e.pod, e.by.pod)
			d.Running, d.Earlier, d.Lacked = e.running, e.earlier, e.lacked
			if e.old != nil && !podspec.Inactive(e.old.pod.Status) {
				e.old.by, e.old.lacked = e.by, e.lacked
				stopped = append(stopped, e.old)
			}
		case len(e.reasons) > 0:
			d.Verdict = Rejected
			d.Reasons = e.reasons
			d.Reason, d.Message = e.reasons[0].Reason, e.reasons[0].Message
		case e.wait != nil:
			d.Verdict, d.Reason, d.Message, d.Place, d.Lacks = Queued, ReasonQueued, e.wait.Message, e.wait.Place, e.wait.Lacks
		}
		d.DependsOn = p.o.DependsOn[podspec.NameOf(e.pod)]
		for _, o := range e.others {
			if o != e.old || d.Runs() {
				d.Replaces = append(d.Replaces, o.pod)
			}
		}
		plan.Decisions = append(plan.Decisions, d)
	}
	plan.noteDependencies()
	for _, e := range p.earlier {
		if e.by != nil && !slices.Contains(stopped, e) {
			stopped = append(stopped, e)
		}
	}
	for _, e := range stopped {
		d := PreemptedBy(e.pod, e.by.pod)
		d.Lacked = e.lacked
		plan.Decisions = append(plan.Decisions, d)
	}
	for _, e := range p.pruned {
		plan.Decisions = append(plan.Decisions, Decision{Pod: e.pod, Verdict: Admitted, Running: true, Prune: true})
	}
	return plan
}
