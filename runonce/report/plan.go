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

// Plan is what a run would do.
type Plan struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // Plan
	Node       Node       `json:"node"`
	Decisions  []Decision `json:"decisions"`
	Optimal    bool       `json:"optimal"`
	// Pulls are the images that a run would pull, when an engine was asked.
	Pulls []string `json:"pulls,omitempty"`
}

// Node is what pods are admitted to.
type Node struct {
	Name        string          `json:"name"`
	Allocatable v1.ResourceList `json:"allocatable"`
	// Left is what the pods of the plan and those of earlier runs leave of it.
	Left v1.ResourceList `json:"left"`
}

// Decision is the verdict on one pod.
type Decision struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	UID       string          `json:"uid"`
	Source    string          `json:"source"` // file:line
	Priority  int32           `json:"priority"`
	QOS       v1.PodQOSClass  `json:"qos"`
	Requests  v1.ResourceList `json:"requests"`
	Verdict   admit.Verdict   `json:"verdict"`
	// Action is what a run does with the pod: start, keep, replace, stop, prune or none.
	Action      string         `json:"action"`
	Running     bool           `json:"running"`
	Reason      string         `json:"reason"`
	Message     string         `json:"message"`
	Reasons     []admit.Reason `json:"reasons"`
	PreemptedBy string         `json:"preemptedBy,omitempty"` // namespace/name
}

// NewPlan returns the document for a plan.
func NewPlan(plan admit.Plan) Plan {
	p := Plan{
		APIVersion: APIVersion, Kind: "Plan", Optimal: plan.Optimal,
		Node:      Node{Allocatable: v1.ResourceList{}, Left: v1.ResourceList{}},
		Decisions: make([]Decision, 0, len(plan.Decisions)),
	}
	if plan.Node != nil {
		p.Node.Name = plan.Node.Name
		p.Node.Allocatable = plan.Node.Status.Allocatable
		p.Node.Left = admit.Remaining(plan)
	}
	for _, d := range plan.Decisions {
		p.Decisions = append(p.Decisions, decisionOf(d))
	}
	return p
}

func decisionOf(d admit.Decision) Decision {
	out := Decision{
		Verdict: d.Verdict, Action: action(d), Running: d.Running, Reason: d.Reason, Message: d.Message,
		Reasons: d.Reasons, PreemptedBy: fullName(d.By), Requests: v1.ResourceList{},
	}
	if out.Reasons == nil {
		out.Reasons = []admit.Reason{}
	}
	if d.Pod != nil {
		out.Namespace, out.Name, out.UID = d.Pod.Namespace, d.Pod.Name, string(d.Pod.UID)
		out.Source = d.Pod.Annotations[podspec.AnnotationSource]
		out.Priority, out.QOS = admit.Priority(d.Pod), admit.QOS(d.Pod)
		out.Requests = admit.Requests(d.Pod)
	}
	return out
}

// action says in a word what a run does for the decision.
func action(d admit.Decision) string {
	switch {
	case d.Prune:
		return "prune"
	case d.Verdict == admit.Preempted && d.Running:
		return "stop"
	case d.Verdict != admit.Admitted:
		return "none"
	case d.Running:
		return "keep"
	case d.Replaces != nil:
		return "replace"
	}
	return "start"
}

// notProven is said of a plan that is not optimal.
const notProven = "The search for the fewest victims was cut off: a smaller set may do."

// ExitCode is ExitRejected when a pod is rejected or preempted, else ExitOK.
func (p Plan) ExitCode() int {
	for _, d := range p.Decisions {
		if d.Verdict != admit.Admitted {
			return ExitRejected
		}
	}
	return ExitOK
}

// Table writes one row for each decision, and below what the node has and what is left.
func (p Plan) Table(w io.Writer, s Style) error {
	t := table{color: s.Color, paint: 2}
	t.headOf(s, "NAMESPACE", "POD", "VERDICT", "ACTION", "PRIORITY", "QOS", "CPU", "MEMORY")
	for i := range p.Decisions {
		t.add(p.Decisions[i].cells(s)...)
	}
	if err := t.write(w); err != nil {
		return err
	}
	if !p.Optimal {
		if _, err := io.WriteString(w, "\n"+notProven+"\n"); err != nil {
			return fmt.Errorf("writing table: %w", err)
		}
	}
	if err := p.writeNode(w); err != nil {
		return err
	}
	return p.writePulls(w)
}

func (p Plan) writePulls(w io.Writer) error {
	if len(p.Pulls) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t := table{}
	t.head("IMAGES TO PULL")
	for _, ref := range p.Pulls {
		t.add(ref)
	}
	return t.write(w)
}

func (d *Decision) cells(s Style) []string {
	cells := []string{
		dash(d.Namespace), dash(d.Name), string(d.Verdict), d.Action, fmt.Sprint(d.Priority), string(d.QOS),
		amount(d.Requests, v1.ResourceCPU), amount(d.Requests, v1.ResourceMemory),
	}
	message := d.Message
	if d.PreemptedBy != "" && !strings.Contains(message, d.PreemptedBy) {
		message = strings.TrimSuffix("by "+d.PreemptedBy+"; "+message, "; ")
	}
	if s.Wide {
		return append(cells, dash(d.Source), dash(d.Reason), dash(message))
	}
	return append(cells, reason(d.Reason, message))
}

func amount(list v1.ResourceList, name v1.ResourceName) string {
	q, ok := list[name]
	if !ok {
		return "-"
	}
	return q.String()
}

// resources names what the table shows of the node: the resources that every one has, and
// then all others of which it has any.
func (n Node) resources() []v1.ResourceName {
	names := make([]v1.ResourceName, 0, 3+len(n.Allocatable))
	names = append(names, v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods)
	for _, name := range slices.Sorted(maps.Keys(n.Allocatable)) {
		if q := n.Allocatable[name]; !q.IsZero() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// writeNode writes what the node has for pods, and what the admitted ones leave of it.
func (p Plan) writeNode(w io.Writer) error {
	t := table{}
	t.head("NODE", "RESOURCE", "ALLOCATABLE", "LEFT")
	for _, name := range p.Node.resources() {
		t.add(dash(p.Node.Name), string(name), amount(p.Node.Allocatable, name), amount(p.Node.Left, name))
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return fmt.Errorf("writing table: %w", err)
	}
	return t.write(w)
}
