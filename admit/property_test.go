package admit

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// world is a random input of Decide.
type world struct {
	node    *v1.Node
	running []*v1.Pod
	pods    []*v1.Pod
	options Options
}

// randomWorld returns a small node that is full or nearly full, so that pods compete.
func randomWorld(rng *rand.Rand) world {
	w := world{node: node(fmt.Sprintf("cpu=%d,memory=%dMi,pods=%d,example.com/gpu=%d", 1+rng.IntN(4), 256*(1+rng.IntN(8)), 2+rng.IntN(12), rng.IntN(3)))}
	if rng.IntN(2) == 0 {
		w.options.Order = ByManifest
	}
	if rng.IntN(4) == 0 {
		w.options.Prune = everyPod
	}
	w.options.Rerun, w.options.Queue = rng.IntN(4) == 0, rng.IntN(3) == 0
	if rng.IntN(4) == 0 {
		w.options.Recreate = everyPod
	}
	for i := range rng.IntN(10) {
		p := randomPod(rng, fmt.Sprintf("r%d", i))
		p.Status.Phase = []v1.PodPhase{v1.PodRunning, v1.PodRunning, v1.PodRunning, v1.PodFailed}[rng.IntN(4)]
		w.running = append(w.running, p)
		switch rng.IntN(6) {
		case 0: // unchanged
			again := p.DeepCopy()
			again.Status = v1.PodStatus{}
			w.pods = append(w.pods, again)
		case 1: // changed
			w.pods = append(w.pods, randomPod(rng, p.Name, func(q *v1.Pod) { q.UID = "new-" + q.UID }))
		}
	}
	for i := range rng.IntN(3) * rng.IntN(2) {
		b := randomPod(rng, fmt.Sprintf("b%d", i))
		switch rng.IntN(4) {
		case 0: // the same in this run
			w.pods = append(w.pods, b.DeepCopy())
		case 1: // runs already
			b.Status.Phase = v1.PodRunning
			w.running = append(w.running, b.DeepCopy())
		case 2: // other content in this run
			w.pods = append(w.pods, randomPod(rng, b.Name, func(q *v1.Pod) { q.UID = "new-" + q.UID }))
		}
		w.options.Reserved = append(w.options.Reserved, b)
	}
	for i := range 1 + rng.IntN(5) {
		w.pods = append(w.pods, randomPod(rng, fmt.Sprintf("p%d", i)))
	}
	w.addVersions(rng)
	rng.Shuffle(len(w.pods), func(i, k int) { w.pods[i], w.pods[k] = w.pods[k], w.pods[i] })
	return w
}

// addVersions adds other versions of some pods, as they should not be there: pods that run, have
// ended, or that another run is about to start.
func (w *world) addVersions(rng *rand.Rand) {
	names := map[string]bool{}
	for _, p := range slices.Concat(w.running, w.pods, w.options.Reserved) {
		names[p.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for v := range rng.IntN(3) * rng.IntN(2) {
			p := randomPod(rng, name, func(q *v1.Pod) { q.UID = types.UID(fmt.Sprintf("version%d-%s", v, q.UID)) })
			switch rng.IntN(4) {
			case 0:
				w.options.Reserved = append(w.options.Reserved, p)
				continue
			case 1:
				w.options.Reserved = append(w.options.Reserved, p.DeepCopy())
			}
			p.Status.Phase = []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodFailed, v1.PodSucceeded}[rng.IntN(5)]
			if rng.IntN(2) == 0 {
				p.Status.StartTime = &metav1.Time{Time: time.Unix(int64(rng.IntN(3)), 0)}
			}
			w.running = append(w.running, p)
		}
	}
}

func randomPod(rng *rand.Rand, name string, change ...func(*v1.Pod)) *v1.Pod {
	priorities := []int32{0, 0, 0, 5, 1000, SystemCritical, SystemCritical + 1000}
	p := pod(name, priorities[rng.IntN(len(priorities))], "", change...)
	list := v1.ResourceList{}
	if rng.IntN(4) > 0 {
		list[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(100*rng.IntN(12)), resource.DecimalSI)
		list[v1.ResourceMemory] = *resource.NewQuantity(int64(64*rng.IntN(10))<<20, resource.BinarySI)
	}
	if rng.IntN(8) == 0 {
		list["example.com/gpu"] = *resource.NewQuantity(int64(rng.IntN(3)), resource.DecimalSI)
	}
	p.Spec.Containers[0].Resources.Requests = list
	if rng.IntN(3) == 0 {
		limits(p)
	}
	if rng.IntN(4) == 0 {
		hostPort([]string{"", "10.0.0.1", "10.0.0.2"}[rng.IntN(3)], v1.ProtocolTCP, int32(80+rng.IntN(2)))(p)
	}
	return p
}

func TestDecideProperties(t *testing.T) {
	t.Parallel()
	worlds := 12_000
	if testing.Short() {
		worlds = 3_000
	}
	rng := rand.New(rand.NewPCG(7, 8))
	for n := range worlds {
		if problem := problemWith(randomWorld(rng), rng); problem != "" {
			t.Fatalf("world %d: %s", n, problem)
		}
	}
}

func FuzzDecide(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed*7919)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		rng := rand.New(rand.NewPCG(a, b))
		if problem := problemWith(randomWorld(rng), rng); problem != "" {
			t.Fatal(problem)
		}
	})
}

// problemWith decides, and returns what is wrong with the plan.
func problemWith(w world, rng *rand.Rand) string {
	nodeBefore, podsBefore, runningBefore := w.node.DeepCopy(), copies(w.pods), copies(w.running)
	plan := Decide(w.node, w.running, w.pods, w.options)
	if !reflect.DeepEqual(w.node, nodeBefore) || !reflect.DeepEqual(w.pods, podsBefore) || !reflect.DeepEqual(w.running, runningBefore) {
		return "an argument was changed"
	}
	shuffled := copies(w.running)
	rng.Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
	rng.Shuffle(len(w.options.Reserved), func(i, k int) {
		w.options.Reserved[i], w.options.Reserved[k] = w.options.Reserved[k], w.options.Reserved[i]
	})
	if again := Decide(w.node, shuffled, w.pods, w.options); !reflect.DeepEqual(rows(again), rows(plan)) {
		return fmt.Sprintf("in another order of the running pods: %+v, not %+v", rows(again), rows(plan))
	}
	if len(plan.Decisions) < len(w.pods) {
		return "a pod has no decision"
	}
	for i, p := range w.pods {
		if plan.Decisions[i].Pod != p {
			return "decisions are not in input order"
		}
	}
	if problem := severalVersions(w, plan); problem != "" {
		return problem
	}
	stays, starts := standing(w, plan)
	if problem := overcommitted(w.node, stays, starts); problem != "" {
		return problem
	}
	return badVictim(w, plan, stays, starts)
}

func copies(pods []*v1.Pod) []*v1.Pod {
	var all []*v1.Pod
	for _, p := range pods {
		all = append(all, p.DeepCopy())
	}
	return all
}

// standing returns all pods that run once the plan is carried out, and those of them that are
// started.
func standing(w world, plan Plan) (stays, starts []*v1.Pod) {
	gone := map[string]bool{}
	for _, d := range plan.Decisions {
		if d.Running {
			gone[string(d.Pod.UID)] = d.Verdict == Preempted || d.Prune
		}
		for _, p := range d.Replaces {
			gone[string(p.UID)] = true
		}
		if d.Verdict == Admitted && !d.Running {
			stays, starts = append(stays, d.Pod), append(starts, d.Pod)
		}
	}
	runs := map[string]bool{}
	for _, p := range w.running {
		runs[string(p.UID)] = true
		if !podspec.Ended(p.Status.Phase) && !gone[string(p.UID)] {
			stays = append(stays, p)
		}
	}
	for _, p := range w.options.Reserved {
		if !runs[string(p.UID)] && !gone[string(p.UID)] {
			stays = append(stays, p)
		}
	}
	return stays, starts
}

// severalVersions says which pod of the input there is more than once when the plan is carried out.
func severalVersions(w world, plan Plan) string {
	left := map[types.UID]string{}
	for _, p := range slices.Concat(w.running, w.options.Reserved) {
		left[p.UID] = p.Name
	}
	for _, d := range plan.Removals() {
		delete(left, d.Pod.UID)
	}
	for _, p := range plan.Admitted() {
		left[p.UID] = p.Name
	}
	count := map[string]int{}
	for _, name := range left {
		count[name]++
	}
	for _, p := range w.pods {
		if count[p.Name] > 1 {
			return fmt.Sprintf("%d versions of %s are left", count[p.Name], p.Name)
		}
	}
	return ""
}

// overcommitted says which resource or port the started pods overcommit.
func overcommitted(n *v1.Node, stays, starts []*v1.Pod) string {
	used := v1.ResourceList{v1.ResourcePods: *resource.NewQuantity(int64(len(stays)), resource.DecimalSI)}
	for _, p := range stays {
		for name, q := range Requests(p) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	for _, p := range starts {
		asks := Requests(p)
		asks[v1.ResourcePods] = resource.MustParse("1")
		for name, q := range asks {
			if sum := used[name]; !q.IsZero() && sum.Cmp(n.Status.Allocatable[name]) > 0 {
				return fmt.Sprintf("%s is overcommitted: %s", name, sum.String())
			}
		}
		for _, other := range stays {
			for _, a := range hostPorts(p) {
				for _, b := range hostPorts(other) {
					if p.UID != other.UID && a.key() == b.key() && a.overlaps(b) {
						return fmt.Sprintf("%s and %s have one port", p.Name, other.Name)
					}
				}
			}
		}
	}
	return ""
}

// badVictim says which pod should not be a victim.
func badVictim(w world, plan Plan, stays, starts []*v1.Pod) string {
	verdicts := map[*v1.Pod]Verdict{}
	for _, d := range plan.Decisions {
		verdicts[d.Pod] = d.Verdict
	}
	replaced := map[string]bool{}
	for _, p := range w.pods {
		replaced[p.Name] = true
	}
	runs := map[string]bool{}
	for _, p := range w.running {
		runs[string(p.UID)] = true
	}
	for _, d := range plan.Removals() {
		if !runs[string(d.Pod.UID)] && !replaced[d.Pod.Name] {
			return d.Pod.Name + " is to be stopped, and does not run yet"
		}
	}
	for i, d := range plan.Decisions {
		if d.Verdict != Preempted {
			continue
		}
		switch {
		case !Critical(d.By):
			return fmt.Sprintf("%s is preempted by %s, which is not critical", d.Pod.Name, d.By.Name)
		case Priority(d.Pod) >= Priority(d.By) && (i < len(w.pods) || !replaced[d.Pod.Name]):
			return fmt.Sprintf("%s is preempted by %s, which has no higher priority", d.Pod.Name, d.By.Name)
		case verdicts[d.By] != Admitted:
			return fmt.Sprintf("%s is preempted by %s, which is %s", d.Pod.Name, d.By.Name, verdicts[d.By])
		case i >= len(w.pods) && replaced[d.Pod.Name]:
			// goes with its successor, which is the victim
		case overcommitted(w.node, append(stays[:len(stays):len(stays)], d.Pod), append(starts[:len(starts):len(starts)], d.Pod)) == "":
			return fmt.Sprintf("%s is preempted without need", d.Pod.Name)
		}
	}
	return ""
}
