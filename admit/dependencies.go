package admit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// ReasonDependencyFailed is the reason of a pod that does not start because of another one on which it
// depends.
const ReasonDependencyFailed = "DependencyFailed"

// Blocked says whether the plan admits the pod, but it will not start because of another one on which it
// depends.
func (d Decision) Blocked() bool { return d.Runs() && d.Reason == ReasonDependencyFailed }

// HasStarted says whether an earlier run has started the pod, and it runs or has ended since. If nothing of it
// runs any more, for example after a reboot, it starts again.
func (d Decision) HasStarted() bool {
	return d.Running && (d.Earlier == nil || podspec.Runs(d.Earlier.Status) || podspec.Ended(d.Earlier.Status.Phase))
}

// noteDependencies notes in the decisions on admitted and queued pods that they will not start, if they depend,
// directly or not, on a pod that is not admitted or is not among the pods of the plan because it is
// invalid. The node has room for them nevertheless. A pod that runs already has started.
func (p *Plan) noteDependencies() {
	b := blockers{plan: p, rows: map[types.NamespacedName]int{}, texts: map[string]string{}}
	for i, d := range p.Decisions {
		b.rows[podspec.NameOf(d.Pod)] = i
	}
	for i := range p.Decisions {
		d := &p.Decisions[i]
		if text := b.of(*d); text != "" && d.Runs() {
			d.Reason, d.Message, d.Place, d.Lacks = ReasonDependencyFailed, text, 0, nil
		}
	}
}

// blockers finds out what keeps pods from starting.
type blockers struct {
	plan  *Plan
	rows  map[types.NamespacedName]int
	texts map[string]string // by dependency
}

// of returns why the pod of a decision will not start, "" if it may.
func (b *blockers) of(d Decision) string {
	name := podspec.ShortName(podspec.NameOf(d.Pod))
	switch {
	case d.Verdict == Rejected:
		return fmt.Sprintf("pod %q is rejected: %s", name, d.Message)
	case d.Verdict == Preempted:
		return fmt.Sprintf("pod %q is preempted", name)
	case d.HasStarted():
		return ""
	}
	for _, on := range d.DependsOn {
		if text := b.dependency(on); text != "" {
			return text
		}
	}
	return ""
}

// dependency returns why the dependency will never be met.
func (b *blockers) dependency(on podspec.Dependency) string {
	if text, ok := b.texts[on.ID()]; ok {
		return text
	}
	text := ""
	b.texts[on.ID()] = text // what closes a cycle keeps nothing from starting
	for _, name := range on.Pods {
		row, ok := b.rows[name]
		if !ok {
			text = fmt.Sprintf("pod %q is invalid", podspec.ShortName(name))
		} else {
			text = b.of(b.plan.Decisions[row])
		}
		if text != "" {
			break
		}
	}
	b.texts[on.ID()] = text
	return text
}

// dependenciesFirst returns the pods in their order, but each one after those on which it depends: until these
// are there it has no room, and they may need it.
func (p *planner) dependenciesFirst(pods []*entry) []*entry {
	names := map[types.NamespacedName]*entry{}
	for _, e := range pods {
		names[podspec.NameOf(e.pod)] = e
	}
	ordered := make([]*entry, 0, len(pods))
	seen, placed := map[string]bool{}, map[*entry]bool{}
	var place func(e *entry)
	place = func(e *entry) {
		if e == nil || placed[e] {
			return
		}
		placed[e] = true
		for _, on := range p.o.DependsOn[podspec.NameOf(e.pod)] {
			if seen[on.ID()] {
				continue
			}
			seen[on.ID()] = true
			for _, name := range on.Pods {
				place(names[name])
			}
		}
		ordered = append(ordered, e)
	}
	for _, e := range pods {
		place(e)
	}
	return ordered
}
