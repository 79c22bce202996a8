package admit

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestOneVersion: whatever versions of a pod there are, the plan leaves one at most.
func TestOneVersion(t *testing.T) {
	t.Parallel()
	// version returns a version of pod "a", started in that second, 0 for never.
	version := func(uid types.UID, started int64, phase v1.PodPhase) *v1.Pod {
		return pod("a", 0, "cpu=1", func(p *v1.Pod) {
			p.UID, p.Status.Phase = uid, phase
			if started > 0 {
				p.Status.StartTime = &metav1.Time{Time: time.Unix(started, 0)}
			}
		})
	}
	runs := func(uid types.UID, started int64) *v1.Pod { return version(uid, started, v1.PodRunning) }
	promised := version("promised", 0, "")
	input := pod("a", 0, "cpu=1", func(p *v1.Pod) { p.UID = "new" })
	huge := pod("a", 0, "cpu=99", func(p *v1.Pod) { p.UID = "new" })
	boss := pod("boss", SystemCritical, "cpu=2")
	for _, tc := range []struct {
		name           string
		pods           []*v1.Pod
		present, taken []*v1.Pod // by this machine, and promised by other runs
		prune          bool
		want           string // "UID why", in order
		runs           bool   // the input pod runs already
		verdict        Verdict
	}{
		{"one", []*v1.Pod{input}, []*v1.Pod{runs("old", 1)}, nil, false, "old replaced", false, Admitted},
		{"two", []*v1.Pod{input}, []*v1.Pod{runs("old2", 2), runs("old1", 1)}, nil, false, "old1 replaced, old2 replaced", false, Admitted},
		{"a newer one besides it", []*v1.Pod{input}, []*v1.Pod{runs("new", 1), runs("old", 2)}, nil, false, "old a duplicate", true, Admitted},
		{"an older one besides it", []*v1.Pod{input}, []*v1.Pod{runs("new", 2), runs("old", 1)}, nil, false, "old a duplicate", true, Admitted},
		{
			"an ended one besides it",
			[]*v1.Pod{input},
			[]*v1.Pod{runs("new", 2), version("old", 1, v1.PodSucceeded)},
			nil, false, "old a duplicate", true, Admitted,
		},
		{
			"itself, failed, and another one",
			[]*v1.Pod{input},
			[]*v1.Pod{version("new", 1, v1.PodFailed), runs("old", 2)},
			nil, false, "new run again, old replaced", false, Admitted,
		},
		{"one that another run is about to start", []*v1.Pod{input}, nil, []*v1.Pod{promised}, false, "promised replaced", false, Admitted},
		{"such a one besides it", []*v1.Pod{input}, []*v1.Pod{runs("new", 1)}, []*v1.Pod{promised}, false, "promised a duplicate", true, Admitted},
		{"rejected: the youngest stays", []*v1.Pod{huge}, []*v1.Pod{runs("old2", 2), runs("old1", 1)}, nil, false, "old1 a duplicate", false, Rejected},
		{
			"rejected: the one that runs stays",
			[]*v1.Pod{huge},
			[]*v1.Pod{version("failed", 3, v1.PodFailed), runs("old", 1)},
			[]*v1.Pod{promised},
			false, "failed a duplicate, promised a duplicate", false, Rejected,
		},
		{"rejected: one stays", []*v1.Pod{huge}, []*v1.Pod{runs("old", 1)}, nil, false, "", false, Rejected},
		{
			"preempted: none stays",
			[]*v1.Pod{input, boss},
			[]*v1.Pod{runs("new", 2), runs("old", 1)},
			nil, false, "new preempted, old a duplicate", true, Preempted,
		},
		{
			"preempted before it starts: none stays",
			[]*v1.Pod{input, boss},
			[]*v1.Pod{runs("old2", 2), runs("old1", 1)},
			nil, false, "old1 a duplicate, old2 preempted", false, Preempted,
		},
		{"not in the input", []*v1.Pod{boss}, []*v1.Pod{version("old2", 2, v1.PodFailed), version("old1", 1, v1.PodFailed)}, nil, false, "", false, Admitted},
		{
			"not in the input, pruned",
			[]*v1.Pod{boss},
			[]*v1.Pod{runs("old2", 2), runs("old1", 1)},
			[]*v1.Pod{promised},
			true, "old1 no longer in the input, old2 no longer in the input", false, Rejected,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Reserved: tc.taken, Prune: func(*v1.Pod) bool { return tc.prune }}
			o.Order = ByManifest
			plan := Decide(node("cpu=2"), tc.present, tc.pods, o)
			if d := plan.Decisions[0]; d.Verdict != tc.verdict || d.Running != tc.runs {
				t.Errorf("%s, running %t: %s", d.Verdict, d.Running, d.Message)
			}
			var stopped []string
			for _, d := range plan.Removals() {
				stopped = append(stopped, string(d.Pod.UID)+" "+d.Why)
			}
			if got := strings.Join(stopped, ", "); got != tc.want {
				t.Errorf("stopped: %s, want %s", got, tc.want)
			}
			if used := plan.Used[v1.ResourceCPU]; used.CmpInt64(2) > 0 {
				t.Errorf("%s cpu used", used.String())
			}
		})
	}
}

// TestStanding: a plan whose removals have stopped stops nothing more, and its pods go on.
func TestStanding(t *testing.T) {
	t.Parallel()
	old, gone, victim := pod("a", 0, "", func(p *v1.Pod) { p.UID = "old" }), pod("gone", 0, ""), pod("victim", 0, "cpu=2")
	in := []*v1.Pod{pod("a", 0, ""), pod("boss", SystemCritical, "cpu=2"), pod("huge", 0, "cpu=9")}
	plan := Decide(node("cpu=2"), []*v1.Pod{old, gone, victim}, in, Options{Prune: func(p *v1.Pod) bool { return p.Name == "gone" }})
	if n := len(plan.Removals()); n != 3 {
		t.Fatalf("%d removals", n)
	}
	rest := plan.Standing()
	if len(rest.Removals()) != 0 || len(rest.Admitted()) != 2 || len(plan.Removals()) != 3 {
		t.Errorf("%+v", rows(rest))
	}
	for _, d := range rest.Decisions {
		if d.Running != (d.Verdict == Admitted) {
			t.Errorf("%s: running %t", d.Pod.Name, d.Running)
		}
	}
}

// TestReplacedIsNoVictim: the old version of a pod, which is to be preempted before the new one is
// admitted, does not come back in the place of another victim.
func TestReplacedIsNoVictim(t *testing.T) {
	t.Parallel()
	old := func(p *v1.Pod) { p.UID = "old-" + p.UID }
	keep := pod("keep", 1000, "cpu=1000m,memory=576Mi")
	plan := Decide(node("cpu=3,memory=1792Mi,pods=12"),
		[]*v1.Pod{keep, pod("small", 1000, "cpu=300m,memory=256Mi", old)},
		[]*v1.Pod{
			pod("first", SystemCritical, "cpu=500m,memory=192Mi"), pod("rejected", 0, "cpu=1100m,memory=576Mi"),
			pod("small", 0, "cpu=100m"), pod("rejected too", 1000, "memory=384Mi"), pod("second", SystemCritical+1000, "cpu=800m"),
			keep, pod("less", 0, "cpu=300m,memory=448Mi"), pod("least", 0, "cpu=300m,memory=256Mi"),
		},
		Options{Order: ByManifest, Reserved: []*v1.Pod{pod("less", 0, "cpu=1000m,memory=448Mi", old), pod("least", 1000, "cpu=400m,memory=448Mi", old)}})
	for _, d := range plan.Decisions {
		if d.Verdict == Preempted {
			t.Errorf("%s is preempted by %s; there is room for it", d.Pod.Name, d.By.Name)
		}
	}
	if admitted := len(plan.Admitted()); admitted != 6 {
		t.Errorf("%d pods are admitted", admitted)
	}
}
