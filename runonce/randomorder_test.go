package runonce_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// TestOrderIsKept: in random graphs with random outcomes, every run ends, no pod starts before those on which
// it depends have reached their conditions, and none starts after one of them has failed.
func TestOrderIsKept(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { checkRandomOrder(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// fate is what becomes of a pod of a random graph, counted from its start; never is after the run.
type fate struct {
	running, ready, completed, failed time.Duration
}

const never = 1000 * time.Hour

func randomFate(rnd *rand.Rand) (fate, v1.RestartPolicy, script) {
	after := func() time.Duration { return time.Duration(rnd.IntN(20)) * time.Second }
	f := fate{running: after(), ready: never, completed: never, failed: never}
	timeline := []moment{{0, with(v1.PodPending)}, {f.running, with(v1.PodRunning, unready())}}
	end := f.running + time.Second + after()
	switch rnd.IntN(5) {
	case 0:
		f.failed = end
		return f, v1.RestartPolicyNever, script{timeline: append(timeline, moment{end, with(v1.PodFailed, ended(1))})}
	case 1:
		f.ready, f.completed = end, end
		return f, v1.RestartPolicyNever, script{timeline: append(timeline, moment{end, with(v1.PodSucceeded, ended(0))})}
	case 2:
		f = fate{never, never, never, 0}
		return f, v1.RestartPolicyAlways, script{sync: always(errBadName)}
	default:
		f.ready = end
		return f, v1.RestartPolicyAlways, script{timeline: append(timeline, moment{end, running()})}
	}
}

func checkRandomOrder(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	n := 1 + rnd.IntN(12)
	pods, fates := make([]ordered, n), map[string]fate{}
	for i := range pods {
		p := &pods[i]
		p.name = fmt.Sprintf("p%d", i)
		fates[p.name], p.policy, p.script = randomFate(rnd)
		p.script.syncTakes = time.Duration(rnd.IntN(2)) * time.Second
		for j := range i {
			if rnd.IntN(3) > 0 {
				continue
			}
			conditions := []podspec.Until{podspec.UntilRunning, podspec.UntilReady}
			if pods[j].policy == v1.RestartPolicyNever {
				conditions = append(conditions, podspec.UntilCompleted)
			}
			p.on = append(p.on, onPods(conditions[rnd.IntN(len(conditions))], pods[j].name))
		}
	}
	rnd.Shuffle(n, func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	plan, rt := planOf(pods)
	begin := time.Now()
	runonce.Run(t.Context(), rt, plan, runonce.Options{Parallel: 1 + rnd.IntN(3), Timeout: 100 * time.Hour})
	if time.Since(begin) > 50*time.Hour {
		t.Errorf("the run took %s", time.Since(begin))
	}
	started := map[string]time.Time{} // the first Sync
	for at, names := range rt.began {
		for _, name := range names {
			if first, ok := started[name]; !ok || at.Before(first) {
				started[name] = at
			}
		}
	}
	for _, p := range pods {
		at, ok := started[p.name]
		if !ok {
			continue
		}
		for _, on := range p.on {
			f, other, ok := fates[on.Name], started[on.Name], !started[on.Name].IsZero()
			reached := map[podspec.Until]time.Duration{podspec.UntilRunning: f.running, podspec.UntilReady: f.ready, podspec.UntilCompleted: f.completed}[on.Condition]
			if !ok || at.Before(other.Add(reached)) {
				t.Errorf("%s started at %s, %s at %s and needs %s to be %s", p.name, at.Sub(begin), on.Name, other.Sub(begin), reached, on.Condition)
			}
			// A Sync takes a second at most, before which the clock of the other pod does not run.
			if ok && at.After(other.Add(f.failed+time.Second)) {
				t.Errorf("%s started at %s, after %s had failed", p.name, at.Sub(begin), on.Name)
			}
		}
	}
}
