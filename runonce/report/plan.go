package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// Plan is the document for what a run would do.
type Plan struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // Plan
	Node       Node       `json:"node"`
	Decisions  []Decision `json:"decisions"` // one for each pod
	Optimal    bool       `json:"optimal"`   // no smaller set of pods could be preempted
	// Nodes are those of the cluster, if the plan is for one; then node is empty.
	Nodes []Node `json:"nodes,omitempty"`
	// Others are pods, containers and machines of other engines, or of other roots, which have what is missing from
	// the node's allocatable resources, with --count-others.
	Others []admit.Other `json:"others,omitempty"`
	// Pulls are the images that a run would pull, if an engine was asked.
	Pulls []string `json:"pulls,omitempty"`
	// Runtime is the OCI runtime that pods without a RuntimeClass would have, if an engine was asked.
	Runtime *Runtime `json:"runtime,omitempty"`
	Failure
}

// Node is the node that pods are admitted to.
type Node struct {
	Name string `json:"name"`
	// Capacity is more than Allocatable by what is reserved and what a kubelet keeps free.
	Capacity    v1.ResourceList `json:"capacity,omitempty"`
	Allocatable v1.ResourceList `json:"allocatable"`
	// Left is what the pods of the plan and those of earlier runs leave of it.
	Left v1.ResourceList `json:"left"`
}

// Decision is the decision on one pod.
type Decision struct {
	PodID
	Priority int32           `json:"priority"`
	QOS      v1.PodQOSClass  `json:"qos"`
	Requests v1.ResourceList `json:"requests"`
	Verdict  admit.Verdict   `json:"verdict"`
	// Action is what a run does with the pod: start, keep, rerun, replace, stop, prune, queue or none.
	Action      string         `json:"action"`
	Running     bool           `json:"running"`               // already, from an earlier run
	Reason      string         `json:"reason"`                // why the pod is not admitted, in one word
	Message     string         `json:"message"`               // why the pod is not admitted, for people
	Reasons     []admit.Reason `json:"reasons"`               // all of them
	PreemptedBy string         `json:"preemptedBy,omitempty"` // namespace/name
	// QueuePosition is the place of a Queued pod among those that wait, from 1, and WaitsFor is what it waits
	// for: resources of the node, "host ports" or "volumes".
	QueuePosition int      `json:"queuePosition,omitempty"`
	WaitsFor      []string `json:"waitsFor,omitempty"`
	// Replaces has the UIDs of the pods of the same namespace and name that a run stops.
	Replaces []string `json:"replaces,omitempty"`
	// DependsOn is what must be there before the pod starts: other pods, or all pods of workloads.
	DependsOn []podspec.Dependency `json:"dependsOn,omitempty"`
	// Optional says that the exit code does not depend on the pod.
	Optional bool `json:"optional,omitempty"`
	// Notes say what else there is to know of the pod, such as what it may do with the machine.
	Notes []string `json:"notes,omitempty"`

	blocked bool // the pod is admitted and will not start
}

// NewPlan returns the document for a plan.
func NewPlan(plan admit.Plan) Plan {
	p := Plan{
		APIVersion: APIVersion, Kind: "Plan", Optimal: plan.Optimal, Others: plan.Others,
		Node:      Node{Allocatable: v1.ResourceList{}, Left: v1.ResourceList{}},
		Decisions: make([]Decision, 0, len(plan.Decisions)),
	}
	if plan.Node != nil && plan.Node.Name != "" {
		p.Node = NodeOf(plan)
	}
	for _, d := range plan.Decisions {
		p.Decisions = append(p.Decisions, newDecision(d))
	}
	return p
}

// NodeOf returns the node of a plan.
func NodeOf(plan admit.Plan) Node {
	st := plan.Node.Status
	return Node{Name: plan.Node.Name, Capacity: st.Capacity, Allocatable: st.Allocatable, Left: admit.Remaining(plan)}
}

func newDecision(d admit.Decision) Decision {
	out := Decision{
		PodID: podID(d.Pod), Verdict: d.Verdict, Action: action(d), Running: d.Running, Reason: d.Reason, Message: d.Message,
		Reasons: append([]admit.Reason{}, d.Reasons...), PreemptedBy: podspec.FullName(d.By), Requests: v1.ResourceList{},
		DependsOn: d.DependsOn, Optional: podspec.IsOptional(d.Pod), blocked: d.Blocked(),
		QueuePosition: d.Place, WaitsFor: d.Lacks,
	}
	if out.Message == "" {
		out.Message = earlierRun(d)
	}
	for _, pod := range d.Replaces {
		out.Replaces = append(out.Replaces, string(pod.UID))
	}
	if d.Pod != nil {
		out.Priority, out.QOS, out.Requests = admit.Priority(d.Pod), podspec.QOS(d.Pod), admit.Requests(d.Pod)
	}
	return out
}

// action returns what a run does for the decision.
func action(d admit.Decision) string {
	switch {
	case d.Prune:
		return "prune"
	case d.Verdict == admit.Preempted && d.Running:
		return "stop"
	case d.Blocked() && len(d.Replaces) > 0 && (d.Again() == nil || d.Recreated()):
		return "stop"
	case d.Blocked():
		return "none"
	case d.Verdict == admit.Queued:
		return "queue"
	case d.Verdict != admit.Admitted:
		return "none"
	case d.Running:
		return "keep"
	case d.Again() != nil && !d.Recreated():
		return "rerun"
	case len(d.Replaces) > 0:
		return "replace"
	}
	return "start"
}

// earlierRun says how the pod ended in an earlier run, if it did, or what else is there of one.
func earlierRun(d admit.Decision) string {
	const succeeded = "succeeded in an earlier run"
	switch {
	case d.Recreated():
		return "" // it is replaced
	case d.Again() != nil && d.Again().Status.Phase == v1.PodFailed:
		return "failed in an earlier run"
	case d.Again() != nil:
		return succeeded
	case d.Running && len(d.Replaces) > 0:
		return "another version of the pod is stopped"
	case d.Running && d.Earlier != nil && d.Earlier.Status.Phase == v1.PodSucceeded:
		return succeeded + "; --rerun runs it again"
	}
	return ""
}

// ExitCode is ExitRejected if a pod that is not optional is rejected or preempted, or depends on one that
// is, else ExitOK.
func (p Plan) ExitCode() int {
	for i := range p.Decisions {
		if p.Decisions[i].refused() && !p.Decisions[i].Optional {
			return ExitRejected
		}
	}
	return ExitOK
}

// refused says whether a run would not start the pod, or stop it.
func (d *Decision) refused() bool {
	return d.blocked || d.Verdict != admit.Admitted && d.Verdict != admit.Queued
}

// notOptimal is shown for a plan that is not optimal.
const notOptimal = "\nThe search for the smallest set of victims was cut short: there may be a smaller one.\n"

// afterAction is where the columns about the queue come, if pods wait.
const afterAction = 4

// Table writes one row for each decision, the details of pods that are not admitted, what the node
// has and what is left of it, and the images to pull.
func (p Plan) Table(w io.Writer, s Style) error {
	cols := []column{
		namespaceColumn(),
		{title: "POD"},
		{title: "VERDICT", colored: true},
		{title: "ACTION"},
		{title: "PRIORITY", optional: true, usual: []string{"0"}},
		{title: "QOS", expendable: true},
		{title: "CPU", optional: true},
		{title: "MEMORY", optional: true},
	}
	if slices.ContainsFunc(p.Decisions, func(d Decision) bool { return len(d.DependsOn) > 0 }) {
		cols = append(cols, column{title: "DEPENDS ON"})
	}
	width := len(cols)
	queue := slices.ContainsFunc(p.Decisions, func(d Decision) bool { return d.QueuePosition > 0 })
	if queue {
		cols = slices.Insert(cols, afterAction, column{title: "QUEUE"}, column{title: "WAITS FOR"})
	}
	rows := make([]row, 0, len(p.Decisions))
	for i := range p.Decisions {
		one := p.Decisions[i].row()
		one.cells = one.cells[:width]
		if queue {
			one.cells = slices.Insert(one.cells, afterAction, p.Decisions[i].position(), strings.Join(p.Decisions[i].WaitsFor, ", "))
		}
		if !s.Wide && p.Decisions[i].Verdict == admit.Queued {
			one.reason, one.message = "", "" // the columns say enough
		}
		rows = append(rows, one)
	}
	text := podTable(s, cols, rows)
	if !p.Optimal {
		text += notOptimal
	}
	node := table{columns: columns("NODE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "LEFT")}
	node.columns[2].optional = true
	nodes := p.Nodes
	if p.Node.Name != "" {
		nodes = []Node{p.Node}
	}
	for _, n := range nodes {
		for _, name := range n.resources() {
			node.add(n.Name, string(name), n.capacityOf(name), quantity(n.Allocatable, name), quantity(n.Left, name))
		}
	}
	node.trim()
	text += "\n" + node.text() + p.others() + p.notes()
	if len(p.Pulls) > 0 {
		text += "\nIMAGES TO PULL\n" + strings.Join(p.Pulls, "\n") + "\n"
	}
	if p.Runtime != nil && s.Wide {
		text += "\nOCI RUNTIME\n" + p.Runtime.Path + ", since " + p.Runtime.Reason + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// others returns the table of what counts besides pods, if anything does.
func (p Plan) others() string {
	if len(p.Others) == 0 {
		return ""
	}
	others := table{columns: columns("COUNTED OTHERS", "KIND", "CPU", "MEMORY")}
	for _, o := range p.Others {
		others.add(o.Cgroup, o.Kind, o.CPU.String(), o.Memory.String())
	}
	return "\n" + others.text()
}

// notes are those of all pods, each below the one before.
func (p Plan) notes() string {
	var b strings.Builder
	for i := range p.Decisions {
		for _, note := range p.Decisions[i].Notes {
			b.WriteString(Printable(p.Decisions[i].Namespace+"/"+p.Decisions[i].Name+": "+note) + "\n")
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nNOTES\n" + b.String()
}

func (d *Decision) row() row {
	others := d.Reasons[min(1, len(d.Reasons)):] // the message is that of the first
	more := make([]string, 0, len(others))
	for _, r := range others {
		more = append(more, r.Reason+": "+r.Message)
	}
	return row{
		PodID: d.PodID, more: more, word: string(d.Verdict), problem: d.refused(), optional: d.Optional, reason: d.Reason, message: messageOf(d.Reason, d.Message, d.PreemptedBy),
		cells: []string{
			d.Namespace, d.Name, string(d.Verdict), d.Action, fmt.Sprint(d.Priority), string(d.QOS),
			quantity(d.Requests, v1.ResourceCPU), quantity(d.Requests, v1.ResourceMemory), podspec.Written(d.DependsOn, d.Namespace),
		},
	}
}

// position is the place of the pod in the queue, "" if it has none.
func (d *Decision) position() string {
	if d.QueuePosition == 0 {
		return ""
	}
	return fmt.Sprint(d.QueuePosition)
}

func quantity(list v1.ResourceList, name v1.ResourceName) string {
	q, ok := list[name]
	if !ok {
		return ""
	}
	return q.String()
}

// capacityOf returns how much of a resource the node has, "" if pods may use everything that it has.
func (n Node) capacityOf(name v1.ResourceName) string {
	for other, all := range n.Capacity {
		if all.Cmp(n.Allocatable[other]) != 0 {
			return quantity(n.Capacity, name)
		}
	}
	return ""
}

// resources returns the rows of the node's table: the resources that every node has, then all
// others that it has.
func (n Node) resources() []v1.ResourceName {
	names := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}
	for _, name := range slices.Sorted(maps.Keys(n.Allocatable)) {
		if q := n.Allocatable[name]; !q.IsZero() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
