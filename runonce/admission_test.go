package runonce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
)

// nodeOf returns a node with so many cpus.
func nodeOf(cpus string) *v1.Node {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus), v1.ResourcePods: resource.MustParse("110")}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: v1.NodeStatus{Capacity: list, Allocatable: list}}
}

// sized returns a pod that requests so many cpus.
func sized(name string, policy v1.RestartPolicy, cpus string) *v1.Pod {
	p := newPod(name, policy)
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpus)}
	return p
}

func queuePlan(cpus string, running []*v1.Pod, pods ...*v1.Pod) admit.Plan {
	return admit.Decide(nodeOf(cpus), running, pods, admit.Options{Queue: true})
}

// stuckImage is the error of a pod that cannot be started.
var stuckImage = syncError{text: "no such image", reason: "ErrImagePull", perm: true}

// TestQueue: pods that do not fit start when others have ended, and are rejected when that cannot be any more.
func TestQueue(t *testing.T) {
	t.Parallel()
	never, always := v1.RestartPolicyNever, v1.RestartPolicyAlways
	onFailure := v1.RestartPolicyOnFailure
	looping := script{timeline: []moment{{0, running()}, {time.Second, with(v1.PodRunning, crashed(1))}}}
	elsewhere := sized("elsewhere", always, "1")
	elsewhere.Status.Phase = v1.PodRunning
	oneByOne := func(name string) *v1.Pod {
		p := jobPod(name, never, `"parallelism": 1`)
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
		return p
	}
	for _, c := range []struct {
		name    string
		cpus    string
		running []*v1.Pod
		pods    []*v1.Pod
		scripts map[string]script
		options runonce.Options
		want    []string
		message string // in that of the last result
		elapsed time.Duration
		starts  string // the pods whose first Sync begins, by second
	}{
		{
			name: "one after the other", cpus: "1",
			pods:    []*v1.Pod{sized("a", never, "1"), sized("b", never, "1"), sized("c", never, "1")},
			scripts: map[string]script{"a": succeeding(2 * time.Second), "b": succeeding(3 * time.Second), "c": succeeding(time.Second)},
			want:    []string{"a Succeeded", "b Succeeded", "c Succeeded"}, elapsed: 6 * time.Second, starts: "0:a 2:b 5:c",
		},
		{
			name: "a pod at its goal that can end is waited for", cpus: "1", options: runonce.Options{Until: runonce.UntilRunning},
			pods:    []*v1.Pod{sized("a", never, "1"), sized("b", never, "1")},
			scripts: map[string]script{"a": succeeding(time.Minute), "b": succeeding(time.Minute)},
			want:    []string{"a Succeeded", "b Running"}, elapsed: time.Minute, starts: "0:a 60:b",
		},
		{
			name: "a smaller one waits for the first that waits", cpus: "2",
			pods:    []*v1.Pod{sized("a", never, "1"), sized("big", never, "2"), sized("small", never, "1"), sized("none", never, "0")},
			scripts: map[string]script{"a": succeeding(5 * time.Second), "big": succeeding(time.Second), "small": succeeding(time.Second), "none": succeeding(time.Second)},
			want:    []string{"a Succeeded", "big Succeeded", "small Succeeded", "none Succeeded"}, elapsed: 7 * time.Second, starts: "0:a,none 5:big 6:small",
		},
		{
			name: "what does not end keeps what it has", cpus: "2",
			pods:    []*v1.Pod{sized("web", always, "1"), sized("a", never, "1"), sized("big", never, "2")},
			scripts: map[string]script{"web": runs(), "a": succeeding(time.Second)},
			want:    []string{"web Ready", "a Succeeded", "big Rejected OutOfcpu"}, elapsed: time.Second, starts: "0:a,web",
			message: "pods that do not end have it or get it first: default/web",
		},
		{
			name: "a deadline is an end", cpus: "1",
			pods: []*v1.Pod{func() *v1.Pod {
				p := sized("web", always, "1")
				p.Spec.ActiveDeadlineSeconds = new(int64(9))
				return p
			}(), sized("a", never, "1")},
			scripts: map[string]script{"web": failing(9 * time.Second), "a": succeeding(time.Second)},
			want:    []string{"web Failed Error", "a Succeeded"}, elapsed: 10 * time.Second, starts: "0:web 9:a",
		},
		{
			name: "a pod that is given up is ended", cpus: "1", options: runonce.Options{MaxRestarts: new(0)},
			pods:    []*v1.Pod{sized("loop", onFailure, "1"), sized("image", never, "1"), sized("a", never, "1")},
			scripts: map[string]script{"loop": looping, "image": {sync: func(int) error { return stuckImage }}, "a": succeeding(time.Second)},
			want:    []string{"loop Failed CrashLoopBackOff 2", "image Failed ErrImagePull", "a Succeeded"}, elapsed: 2 * time.Second, starts: "0:loop 1:a,image",
		},
		{
			name: "retries of a Job keep the room", cpus: "1", options: runonce.Options{Retry: runonce.Backoff{Factor: 1, Retries: 1}},
			pods:    []*v1.Pod{jobOf(sized("a", never, "1"), `"backoffLimit": 6`), sized("b", never, "1")},
			scripts: map[string]script{"a": failing(time.Second), "b": succeeding(time.Second)},
			want:    []string{"a Failed Error 2", "b Succeeded"}, elapsed: 13 * time.Second, starts: "0:a 12:b",
		},
		{
			name: "what its Job does not let start keeps nobody waiting", cpus: "2",
			pods:    []*v1.Pod{oneByOne("j1"), oneByOne("j2"), sized("b", never, "1")},
			scripts: map[string]script{"j1": succeeding(4 * time.Second), "j2": succeeding(time.Second), "b": succeeding(6 * time.Second)},
			want:    []string{"j1 Succeeded", "j2 Succeeded", "b Succeeded"}, elapsed: 6 * time.Second, starts: "0:b,j1 4:j2",
		},
		{
			name: "pods of other runs are not waited for", cpus: "2", running: []*v1.Pod{elsewhere},
			pods:    []*v1.Pod{sized("a", never, "1"), sized("big", never, "2")},
			scripts: map[string]script{"a": succeeding(5 * time.Second)},
			want:    []string{"a Succeeded", "big Rejected OutOfcpu"}, elapsed: 5 * time.Second, starts: "0:a",
			message: "pods of other runs have it: default/elsewhere; it has waited for 5s",
		},
		{
			name: "out of time", cpus: "1", options: runonce.Options{Timeout: time.Minute},
			pods:    []*v1.Pod{sized("a", never, "1"), sized("b", never, "1")},
			scripts: map[string]script{"a": succeeding(time.Hour)},
			want:    []string{"a TimedOut PodNotCompleted", "b TimedOut NotStarted"}, elapsed: time.Minute, starts: "0:a",
			message: "the run ended before the pod was started: waits for cpu: needs 1, 0 of 1 are free; it is the next one",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{scripts: c.scripts}
				begin := time.Now()
				if c.options.Until == "" {
					c.options.Until = runonce.UntilCompleted
				}
				results := runonce.Run(t.Context(), f, queuePlan(c.cpus, c.running, c.pods...), c.options)
				if diff := cmp.Diff(c.want, inWords(results)); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				want(t, "elapsed", time.Since(begin), c.elapsed)
				want(t, "starts", f.starts(begin), c.starts)
				if last := results[len(results)-1].Message; !strings.HasSuffix(last, c.message) {
					t.Errorf("message %q, want %q", last, c.message)
				}
			})
		})
	}
}

// jobOf makes the pod one of a Job with the rules.
func jobOf(p *v1.Pod, rules string) *v1.Pod {
	p.Annotations = jobPod(p.Name, p.Spec.RestartPolicy, rules).Annotations
	return p
}

// inWords returns the results as "name outcome reason attempts".
func inWords(results []runonce.Result) []string {
	var all []string
	for _, r := range results {
		text := []string{r.Pod.Name, string(r.Outcome)}
		if r.Reason != "" {
			text = append(text, r.Reason)
		}
		if r.Attempts > 1 {
			text = append(text, fmt.Sprint(r.Attempts))
		}
		all = append(all, strings.Join(text, " "))
	}
	return all
}

// starts returns the pods by the second in which they were first started.
func (f *fake) starts(begin time.Time) string {
	seen := map[string]bool{}
	times := make([]time.Time, 0, len(f.began))
	for at := range f.began {
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare)
	var all []string
	for _, at := range times {
		var names []string
		for _, name := range f.began[at] {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
		if slices.Sort(names); len(names) > 0 {
			all = append(all, fmt.Sprintf("%.0f:%s", at.Sub(begin).Seconds(), strings.Join(names, ",")))
		}
	}
	return strings.Join(all, " ")
}

// TestManyQueued: at every moment as many pods run as fit, and whenever one ends another one starts.
func TestManyQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		f := &fake{scripts: map[string]script{}}
		var pods []*v1.Pod
		for i := range n {
			p := sized(fmt.Sprintf("p%03d", i), v1.RestartPolicyNever, "1")
			pods = append(pods, p)
			f.scripts[p.Name] = succeeding(time.Second)
		}
		active, most := 0, 0
		begin := time.Now()
		o := runonce.Options{Until: runonce.UntilCompleted, Progress: func(e runonce.Progress) {
			switch e.State {
			case "Starting":
				active++
			case string(runonce.Succeeded):
				active--
			}
			most = max(most, active)
		}}
		for _, r := range runonce.Run(t.Context(), f, queuePlan("2", nil, pods...), o) {
			if r.Outcome != runonce.Succeeded {
				t.Errorf("%s: %s %s", r.Pod.Name, r.Outcome, r.Message)
			}
		}
		want(t, "most at once", most, 2)
		want(t, "elapsed", time.Since(begin), n/2*time.Second)
	})
}

// others are the other runs of the machine.
type others struct {
	present  map[time.Duration]*admit.Present // what others have done, by time
	fails    int                              // so many calls fail
	reserved []string
	looks    int
}

func (b *others) reserve(begin time.Time) func(context.Context, bool, func(*admit.Present) []*v1.Pod) error {
	return func(_ context.Context, look bool, choose func(*admit.Present) []*v1.Pod) error {
		if b.fails > 0 {
			b.fails--
			return errors.New("disk full")
		}
		now := &admit.Present{}
		for at := time.Duration(0); at <= time.Since(begin); at += time.Second {
			if p := b.present[at]; p != nil {
				now = p
			}
		}
		if look {
			b.looks++
		} else if len(b.present) == 0 {
			now = nil
		}
		for _, pod := range choose(now) {
			b.reserved = append(b.reserved, pod.Name)
		}
		return nil
	}
}

// TestQueueBesideOtherRuns: a pod that has waited is admitted to the machine as it is then.
func TestQueueBesideOtherRuns(t *testing.T) {
	t.Parallel()
	other := sized("other", v1.RestartPolicyNever, "1")
	other.Status.Phase = v1.PodRunning
	other2 := sized("other2", v1.RestartPolicyNever, "1")
	other2.Status.Phase = v1.PodRunning
	running := func(p *v1.Pod) *v1.Pod {
		p = p.DeepCopy()
		p.Status.Phase = v1.PodRunning
		return p
	}
	a, b, c := sized("a", v1.RestartPolicyNever, "1"), sized("b", v1.RestartPolicyNever, "1"), sized("c", v1.RestartPolicyNever, "1")
	scripts := map[string]script{"a": succeeding(2 * time.Second), "b": succeeding(20 * time.Second), "c": succeeding(time.Second)}
	for _, test := range []struct {
		name     string
		others   others
		want     []string
		reserved string
		starts   string
	}{
		{name: "alone", want: []string{"a Succeeded", "b Succeeded", "c Succeeded"}, reserved: "[c]", starts: "0:a,b 2:c"},
		{
			name:   "another run has what has become free, for a while",
			others: others{present: map[time.Duration]*admit.Present{0: {Running: []*v1.Pod{other}}, 7 * time.Second: {}}},
			want:   []string{"a Succeeded", "b Succeeded", "c Succeeded"}, reserved: "[c]", starts: "0:a,b 10:c",
		},
		{
			name:   "another run is about to start a pod",
			others: others{present: map[time.Duration]*admit.Present{0: {Reserved: []*v1.Pod{other}}}},
			want:   []string{"a Succeeded", "b Succeeded", "c Succeeded"}, reserved: "[c]", starts: "0:a,b 20:c",
		},
		{
			name:   "another run has started the pod",
			others: others{present: map[time.Duration]*admit.Present{0: {Running: []*v1.Pod{running(c)}}}},
			want:   []string{"a Succeeded", "b Succeeded", "c Succeeded"}, reserved: "[c]", starts: "0:a,b 2:c",
		},
		{
			name: "another run has all, which ends", others: others{present: map[time.Duration]*admit.Present{
				0:                {Reserved: []*v1.Pod{other, other2}, Running: []*v1.Pod{other, other2}},
				40 * time.Second: {},
			}},
			want: []string{"a Succeeded", "b Succeeded", "c Succeeded"}, reserved: "[c]", starts: "0:a,b 40:c",
		},
		{
			name: "another run that is over has left pods on all", others: others{present: map[time.Duration]*admit.Present{
				0: {Running: []*v1.Pod{other, other2}},
			}},
			want: []string{"a Succeeded", "b Succeeded", "c Rejected OutOfcpu"}, reserved: "[]", starts: "0:a,b",
		},
		{
			name: "another run has another version", others: others{present: map[time.Duration]*admit.Present{0: {Running: []*v1.Pod{func() *v1.Pod {
				p := running(c)
				p.UID = "newer"
				return p
			}()}}}},
			want: []string{"a Succeeded", "b Succeeded", "c Rejected Replaced"}, reserved: "[]", starts: "0:a,b",
		},
		{
			name: "an error is tried again", others: others{fails: 1},
			want: []string{"a Succeeded", "b Succeeded", "c Succeeded"}, reserved: "[c]", starts: "0:a,b 5:c",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{scripts: scripts}
				begin := time.Now()
				o := runonce.Options{Until: runonce.UntilCompleted, Reserve: test.others.reserve(begin)}
				results := runonce.Run(t.Context(), f, queuePlan("2", nil, a, b, c), o)
				if diff := cmp.Diff(test.want, inWords(results)); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				want(t, "reserved", fmt.Sprint(test.others.reserved), test.reserved)
				want(t, "starts", f.starts(begin), test.starts)
			})
		})
	}
}

// BenchmarkQueue runs pods of which two fit at once, and which end as soon as they have started. Time and
// memory for each pod should not depend on how many there are.
func BenchmarkQueue(b *testing.B) {
	for _, n := range []int{500, 1000, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			scripts := map[string]script{}
			pods := make([]*v1.Pod, 0, n)
			for i := range n {
				p := sized(fmt.Sprintf("p%04d", i), v1.RestartPolicyNever, "1")
				pods = append(pods, p)
				scripts[p.Name] = script{timeline: []moment{{0, with(v1.PodSucceeded, ended(0))}}}
			}
			b.ReportAllocs()
			for b.Loop() {
				results := runonce.Run(b.Context(), &fake{scripts: scripts}, queuePlan("2", nil, pods...), runonce.Options{Until: runonce.UntilCompleted})
				if last := results[n-1]; last.Outcome != runonce.Succeeded {
					b.Fatal(last.Outcome, last.Message)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/pod")
		})
	}
}
