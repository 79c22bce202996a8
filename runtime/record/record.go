// Package record keeps what runonce itself knows of each pod: one versioned file, written
// before the step that it describes, so that a later process continues where a killed one
// stopped. Other programs write the rest.
package record

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// Version is the version of the file's format. A record with another one is an error.
const Version = 1

// Pod is the record of one pod. What Store returns is shared: only the function passed to
// Update may change it, of the maps only those that clone copies.
type Pod struct {
	Version int     `json:"version"`
	Pod     *v1.Pod `json:"pod,omitempty"` // as it was admitted, without a status
	// Owners are the runs that have admitted the pod. Those whose process has ended do not
	// count.
	Owners map[string]Owner `json:"owners,omitempty"`
	// Removed says that nothing of the pod is left on the machine; the record stays until
	// the runs that own the pod have read that.
	Removed bool `json:"removed,omitempty"`
	// Started is when the pod was first started, zero for one that is only admitted. It is more
	// precise than a v1.Time, which would make deadlines come early.
	Started time.Time `json:"started,omitzero"`
	// Node is the name of the node as which this machine has started it.
	Node string `json:"node,omitempty"`
	// Runtime is the OCI runtime of its containers, if it has no RuntimeClass: they keep it, whatever later runs choose.
	// Earlier versions leave it empty.
	Runtime string `json:"runtime,omitempty"`
	// Failed says that the pod has ended for good, whatever its restart policy says.
	Failed *Failure `json:"failed,omitempty"`
	// Outcome is what the last run has decided, nil if that is not known. It changes nothing of the
	// pod and of its status.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Former is the definition that this one has replaced, and that runs again if this one does not reach its goal; nil
	// for none, or once it has.
	Former *v1.Pod `json:"former,omitempty"`
	// Sandboxed and Discarded are the last instance of each container that does not count any
	// more: Sandboxed because it ran in an earlier sandbox, so that init containers run again;
	// Discarded because all containers of the pod were restarted in place. The kubelet finds the
	// former by their sandbox and removes the latter; here both stay until the next instance
	// runs, so that their exit is not lost.
	Sandboxed map[string]int `json:"sandboxed,omitempty"`
	Discarded map[string]int `json:"discarded,omitempty"`
	// Failures are why containers wait: they could not be started, or are in back-off. PodFailure
	// is the key for why the pod could not be prepared for them.
	Failures map[string]Failure `json:"failures,omitempty"`
	// FailedStarts are the newest instances of containers that can never be started. An
	// engine keeps nothing of them, but for the pod they have ended.
	FailedStarts map[string]engine.Container `json:"failedStarts,omitempty"`
	// StartedUp are the IDs of the instances, by the names of their containers, whose startup
	// probe has succeeded, so that no later process runs it again.
	StartedUp map[string]string `json:"startedUp,omitempty"`
	// PostStarts are the IDs of the instances, by the names of their containers, whose postStart
	// hook nobody has seen pass. An ID is written before its instance starts and removed after
	// the hook, so that a hook that was cut off at any point is run again, and an instance that is
	// not named here, of an earlier version for example, has nothing left to run.
	PostStarts map[string]string `json:"postStarts,omitempty"`
	// Devices are the names of the devices of each container.
	Devices map[string][]string `json:"devices,omitempty"`
	// Attachment is what package network needs to undo the work of CNI plugins. It is written
	// before the first plugin adds anything and removed after the last has deleted that, so that
	// a crash or a reboot in between leaks nothing.
	Attachment json.RawMessage `json:"attachment,omitempty"`
	// FirstUserID is the first of the pod's own engine.UserIDs user IDs, 0 for none.
	FirstUserID uint32 `json:"firstUserID,omitempty"`
	// Sandbox is what the containers share, once all of it has been made.
	Sandbox *engine.Sandbox `json:"sandbox,omitempty"`
	// Ready says that the pod in this sandbox was ready when a run has last looked: it gets the connections of
	// Services.
	Ready bool `json:"ready,omitempty"`
}

// PodFailure is the key in Failures of what concerns all containers. No container has this
// name.
const PodFailure = ""

// Failure is why a pod, or the next instance of a container, failed.
type Failure struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Attempt int    `json:"attempt,omitempty"` // of the instance
}

// Owner is what the record keeps of a run that has admitted the pod.
type Owner struct {
	// Lost says that another process has stopped the pod since, and the run must not start it
	// again. By is the pod that preempted it, if any, and Process describes the process.
	Lost    bool                 `json:"lost,omitempty"`
	By      types.NamespacedName `json:"by,omitzero"`
	Process string               `json:"process,omitempty"`
	// Removes is set if the run has started the pod and removes it at its end, or only with some outcomes: it is then the
	// run's word for that.
	Removes string `json:"removes,omitempty"`
}

// Start records that the pod is started now, for the first time.
func (p *Pod) Start(pod *v1.Pod) {
	p.admit(pod)
	p.Started = time.Now()
	if !p.DefinedBy(pod) {
		p.Define(pod)
	}
}

// admit makes it the record of the pod, unless it is that already.
func (p *Pod) admit(pod *v1.Pod) {
	if p.Pod == nil || p.Removed {
		p.Pod, p.Removed = pod.DeepCopy(), false
		p.Pod.Status = v1.PodStatus{}
	}
}

// Definition returns the pod as it is recorded: as it was started, or defined since. One that was never
// started, or whose record cannot be used, is as the caller has it.
func (p *Pod) Definition(pod *v1.Pod) *v1.Pod {
	if p.Started.IsZero() || p.Incomplete() {
		return pod
	}
	return p.Pod
}

// DefinedBy reports whether the pod, by its Definition, is as the given one, wherever that was read from.
func (p *Pod) DefinedBy(pod *v1.Pod) bool {
	own := p.Definition(pod)
	return own == pod || equality.Semantic.DeepEqual(own.Spec, withEphemeral(pod, own).Spec) && maps.Equal(own.Labels, pod.Labels) &&
		maps.Equal(withoutOrigin(own.Annotations), withoutOrigin(pod.Annotations))
}

// Define gives a pod that was started another definition, with the same UID. Where it was read from stays, as do the
// ephemeral containers.
func (p *Pod) Define(pod *v1.Pod) {
	if p.Started.IsZero() {
		return
	}
	old := p.Pod
	p.Pod = withEphemeral(pod, old).DeepCopy()
	p.Pod.Status = v1.PodStatus{}
	p.adopt(old)
}

// SetEphemeral sets the ephemeral containers.
func (p *Pod) SetEphemeral(all []v1.EphemeralContainer) {
	own := *p.Pod
	own.Spec.EphemeralContainers = all
	p.Pod = &own
}

// withEphemeral returns the pod with the ephemeral containers that it had, in their order, and its own.
func withEphemeral(pod, old *v1.Pod) *v1.Pod {
	if len(old.Spec.EphemeralContainers) == 0 {
		return pod
	}
	all := *pod
	all.Spec.EphemeralContainers = podspec.MergeEphemeral(old, pod)
	return &all
}

// origin are the annotations that say where a pod was read from.
var origin = []string{podspec.AnnotationPath, podspec.AnnotationSource}

func withoutOrigin(annotations map[string]string) map[string]string {
	own := maps.Clone(annotations)
	maps.DeleteFunc(own, func(key, _ string) bool { return slices.Contains(origin, key) })
	return own
}

// IsStopping reports whether the pod was told to stop, and is not removed yet.
func (p *Pod) IsStopping() bool { return p.Failed != nil && p.Failed.Reason == ReasonStopped }

// adopt notes where the pod was read from this time: it belongs to the last run that wanted it.
func (p *Pod) adopt(pod *v1.Pod) {
	adopted := *p.Pod
	adopted.Annotations = maps.Clone(p.Pod.Annotations)
	for _, key := range origin {
		if value, ok := pod.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&adopted.ObjectMeta, key, value)
		}
	}
	p.Pod = &adopted
}

// IsSandboxed reports whether the instance ran in an earlier sandbox.
func (p *Pod) IsSandboxed(c engine.Container) bool { return within(p.Sandboxed, c) }

// IsDiscarded reports whether the instance counts as removed.
func (p *Pod) IsDiscarded(c engine.Container) bool { return within(p.Discarded, c) }

// HasStartedUp reports whether the instance needs no startup probe any more, or has none.
func (p *Pod) HasStartedUp(def *v1.Container, id string) bool {
	return def.StartupProbe == nil || p.StartedUp[def.Name] == id
}

// AwaitsPostStart reports whether the instance has a postStart hook that has not passed yet.
func (p *Pod) AwaitsPostStart(def *v1.Container, id string) bool {
	waiting, ok := p.PostStarts[def.Name]
	return podspec.PostStart(def) != nil && ok && waiting == id
}

func within(last map[string]int, c engine.Container) bool {
	n, ok := last[c.Name]
	return ok && c.Attempt <= n
}

// lasting returns what stays true after a restart of the machine, which ends all runs and containers.
func (p *Pod) lasting() Pod {
	if p.Started.IsZero() {
		return Pod{}
	}
	last := *p
	last.Owners, last.Failures, last.StartedUp, last.PostStarts, last.Sandbox = nil, nil, nil, nil, nil
	last.Ready = false
	return last
}

// clone returns a copy that may be changed.
func (p *Pod) clone() *Pod {
	c := *p
	c.Owners, c.Failures, c.FailedStarts = maps.Clone(p.Owners), maps.Clone(p.Failures), maps.Clone(p.FailedStarts)
	c.StartedUp, c.PostStarts = maps.Clone(p.StartedUp), maps.Clone(p.PostStarts)
	return &c
}
