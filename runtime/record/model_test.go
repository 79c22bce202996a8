package record

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
)

// world is a machine on which processes plan, stop and start pods, in any order. It follows the rules of
// the program: plans are made in turn, and by a process that starts nothing of its plan before any more.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	root string
	node *v1.Node
	all  []*planning
	// ends says of each pod on the machine whether it has ended.
	ends map[types.UID]bool
	// decided is the version that the last plan with a pod of that name has admitted, "" if it was
	// stopped since.
	decided map[string]types.UID
	log     []string
}

// planning is a process, with what is left of its plan.
type planning struct {
	name   string
	run    *Run
	input  []*v1.Pod
	stops  []*v1.Pod // before it leaves
	starts []*v1.Pod
}

const nodeCPU = 6

func newWorld(t *testing.T, rng *rand.Rand) *world {
	t.Helper()
	list := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(nodeCPU, resource.DecimalSI), v1.ResourcePods: resource.MustParse("20")}
	w := &world{
		t: t, rng: rng, root: t.TempDir(), ends: map[types.UID]bool{}, decided: map[string]types.UID{},
		node: &v1.Node{Status: v1.NodeStatus{Capacity: list, Allocatable: list}},
	}
	for i := range 3 {
		w.all = append(w.all, &planning{name: fmt.Sprintf("p%d", i), run: Open(w.root, w.root).NewRun()})
	}
	for range rng.IntN(4) { // what should not be there: perhaps several versions
		pod := w.version()
		w.admit(pod)
		w.ends[pod.UID] = rng.IntN(3) == 0
	}
	return w
}

// version returns a version of one of three pods.
func (w *world) version() *v1.Pod {
	name, n := string(rune('a'+w.rng.IntN(3))), 1+w.rng.IntN(3)
	pod := newPod(name)
	pod.UID = types.UID(fmt.Sprintf("%s%d", name, n))
	if w.rng.IntN(8) == 0 {
		pod.Spec.Priority = new(admit.SystemCritical)
	}
	pod.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI)},
	}}}
	return pod
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.fatalf("%v", err)
	}
}

func (w *world) note(p *planning, format string, args ...any) {
	w.log = append(w.log, p.name+" "+fmt.Sprintf(format, args...))
}

// admit records that the pod is started.
func (w *world) admit(pod *v1.Pod) {
	w.t.Helper()
	_, err := Open(w.root, w.root).Update(pod.UID, func(r *Pod) error { r.Start(pod); return nil })
	w.must(err)
}

// list returns the pods on the machine, as runtime.List does.
func (w *world) list(s *Store) (pods []*v1.Pod) {
	w.t.Helper()
	all, err := s.List()
	w.must(err)
	for _, r := range all {
		if r.Started.IsZero() {
			continue
		}
		pod := r.Pod.DeepCopy()
		pod.Status.Phase, pod.Status.StartTime = v1.PodRunning, &metav1.Time{Time: r.Started}
		if w.ends[pod.UID] {
			pod.Status.Phase = v1.PodFailed
		}
		pods = append(pods, pod)
	}
	return pods
}

// plan makes a new plan for the process if it is its turn.
func (w *world) plan(p *planning) {
	w.t.Helper()
	next := p.run.store.NewRun()
	once, cancel := context.WithCancel(w.t.Context())
	cancel()
	if next.Enter(once) != nil {
		return // another process plans or stops pods
	}
	p.starts = nil // the run before is over
	if w.rng.IntN(3) > 0 || p.input == nil {
		p.input = nil
		for range 1 + w.rng.IntN(3) {
			if pod := w.version(); !slices.ContainsFunc(p.input, func(o *v1.Pod) bool { return o.Name == pod.Name }) {
				p.input = append(p.input, pod)
			}
		}
	}
	reserved, err := next.Reserved()
	w.must(err)
	if w.rng.IntN(3) == 0 {
		w.step(p) // another process goes on meanwhile
	}
	plan := admit.Decide(w.node, w.list(next.store), p.input, admit.Options{Reserved: reserved})
	if w.rng.IntN(3) == 0 {
		w.step(p)
	}
	w.must(next.Reserve(plan.Admitted()))
	w.note(p, "plans")
	for _, d := range plan.Decisions[:len(p.input)] {
		w.note(p, "  %s %s running=%t replaces=%d", d.Pod.UID, d.Verdict, d.Running, len(d.Replaces))
		if d.Verdict == admit.Admitted {
			w.decided[d.Pod.Name] = d.Pod.UID
		}
	}
	for _, d := range plan.Removals() {
		w.must(next.Revoke(d.Pod, d.By))
		p.stops = append(p.stops, d.Pod)
		if w.decided[d.Pod.Name] == d.Pod.UID && d.Why != "run again" {
			w.decided[d.Pod.Name] = ""
		}
	}
	w.must(p.run.Close())
	p.run, p.starts = next, plan.Admitted()
}

// stop stops the next pod that the plan of the process stops. One that it starts again goes on being its own.
func (w *world) stop(p *planning) {
	w.t.Helper()
	pod := p.stops[0]
	p.stops = p.stops[1:]
	w.note(p, "stops %s", pod.UID)
	delete(w.ends, pod.UID)
	s := p.run.store
	if !slices.ContainsFunc(p.starts, func(o *v1.Pod) bool { return o.UID == pod.UID }) {
		w.must(s.Remove(pod.UID))
		return
	}
	if r, err := s.Load(pod.UID); err == nil && s.Owned(r) == nil {
		w.must(s.Reset(pod.UID))
	}
}

// start starts a pod, as Sync does, unless it runs or was taken.
func (w *world) start(p *planning, pod *v1.Pod) {
	w.t.Helper()
	s := p.run.store
	r, err := s.Load(pod.UID)
	if err == nil && s.Owned(r) != nil {
		w.note(p, "has lost %s", pod.UID)
		return
	}
	if ended, there := w.ends[pod.UID]; there && !ended {
		return
	}
	w.note(p, "starts %s", pod.UID)
	w.admit(pod)
	w.ends[pod.UID] = false
	if last := w.decided[pod.Name]; last != pod.UID {
		w.fatalf("%s starts %s, and the last plan wants %q", p.name, pod.UID, last)
	}
	w.oneVersion(p, pod.Name)
	used := int64(0)
	for _, other := range w.list(s) {
		if other.Status.Phase == v1.PodRunning {
			cpu := admit.Requests(other)[v1.ResourceCPU]
			used += cpu.Value()
		}
	}
	if used > nodeCPU {
		w.fatalf("%d cpus are used", used)
	}
}

// oneVersion fails the test if there are several versions of a pod.
func (w *world) oneVersion(p *planning, name string) {
	w.t.Helper()
	var there []types.UID
	for uid := range w.ends {
		if uid[:1] == types.UID(name) {
			there = append(there, uid)
		}
	}
	if len(there) > 1 {
		w.fatalf("%s leaves %v", p.name, there)
	}
}

// step is one thing that happens, to another process than busy.
func (w *world) step(busy *planning) {
	w.t.Helper()
	p := w.all[w.rng.IntN(len(w.all))]
	if p == busy {
		return
	}
	switch n := w.rng.IntN(20); {
	case n == 0: // it is killed
		w.note(p, "is killed")
		p.run.kill(w.t)
		*p = planning{name: p.name, run: Open(w.root, w.root).NewRun()}
	case n == 1: // down
		if pods := w.list(p.run.store); len(pods) > 0 {
			pod := pods[w.rng.IntN(len(pods))]
			other := Open(w.root, w.root).NewRun()
			w.log = append(w.log, "down "+string(pod.UID))
			w.must(other.Revoke(pod, nil))
			if w.decided[pod.Name] == pod.UID {
				w.decided[pod.Name] = ""
			}
			delete(w.ends, pod.UID)
			w.must(other.store.Remove(pod.UID))
		}
	case n == 2: // a pod ends by itself
		for uid := range w.ends {
			w.ends[uid] = true
			break
		}
	case len(p.stops) > 0:
		w.stop(p)
	case p.run.plan != nil:
		for _, pod := range p.input {
			if w.decided[pod.Name] == pod.UID || len(p.starts) == 0 {
				w.oneVersion(p, pod.Name)
			}
		}
		w.must(p.run.Leave())
	case len(p.starts) > 0 && n < 12:
		i := w.rng.IntN(len(p.starts))
		w.start(p, p.starts[i])
		p.starts = slices.Delete(p.starts, i, i+1)
	case busy == nil:
		w.plan(p)
	}
}

// TestModel: in whatever order processes plan, stop, start, take pods and are killed, there is one version of
// each pod once a plan for it has stopped what it stops, only what the last plan wants is started, and the
// node is never overcommitted.
func TestModel(t *testing.T) {
	t.Parallel()
	worlds := 150
	if testing.Short() {
		worlds = 30
	}
	for seed := range worlds {
		w := newWorld(t, rand.New(rand.NewPCG(uint64(seed), 5)))
		for range 120 {
			w.step(nil)
		}
		for _, p := range w.all {
			p.run.kill(t)
		}
	}
}
