package report_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

func TestElapsed(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"0.35s": 350 * time.Millisecond, "9.99s": 9990 * time.Millisecond, "12.3s": 12345 * time.Millisecond,
		"1m5s": 65*time.Second + 200*time.Millisecond, "2h0m0s": 2 * time.Hour,
	} {
		if got := report.Elapsed(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

// tableOf returns the default table of the results.
func tableOf(t *testing.T, results ...runonce.Result) string {
	t.Helper()
	var b strings.Builder
	if err := report.New(results, 0, 0).Table(&b, report.Style{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTable(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("no route to the registry ", 10) + "and that is all"
	running := func(name, ip string) runonce.Result {
		return runonce.Result{
			Pod: pod(name, "a"), Outcome: runonce.Running, Attempts: 1, Elapsed: time.Second,
			Status: v1.PodStatus{PodIPs: []v1.PodIP{{IP: ip}}},
		}
	}
	with := func(r runonce.Result, change func(*runonce.Result)) runonce.Result {
		change(&r)
		return r
	}
	elsewhere := running("web", "")
	elsewhere.Pod.Namespace = "shop"
	for _, c := range []struct {
		name    string
		results []runonce.Result
		want    string
	}{
		{"nothing to say", []runonce.Result{running("web", "")}, "POD  OUTCOME  READY  TIME\nweb  Running  0/1    1.00s\n"},
		{"no pods", nil, "POD  OUTCOME  READY  TIME\n"},
		{"another namespace", []runonce.Result{elsewhere}, "NAMESPACE  POD  OUTCOME  READY  TIME\nshop       web  Running  0/1    1.00s\n"},
		{
			"restarts",
			[]runonce.Result{with(running("web", ""), func(r *runonce.Result) { r.Restarts, r.Attempts = 2, 3 })},
			"POD  OUTCOME  READY  RESTARTS  ATTEMPTS  TIME\nweb  Running  0/1    2         3         1.00s\n",
		},
		{
			"no room for addresses",
			[]runonce.Result{running("web-0123456789abcdef", "10.88.0.2,fd00:10:88::a05:8ff:fe00:2")},
			"POD                   OUTCOME  READY  TIME\nweb-0123456789abcdef  Running  0/1    1.00s\n",
		},
		{
			"room for a message",
			[]runonce.Result{with(running("web", ""), func(r *runonce.Result) { r.Reason, r.Message = "Pruned", "no longer in the input" })},
			"POD  OUTCOME  READY  TIME   REASON\nweb  Running  0/1    1.00s  Pruned: no longer in the input\n",
		},
		{
			"a message only",
			[]runonce.Result{with(running("web", ""), func(r *runonce.Result) { r.Message = "as before" })},
			"POD  OUTCOME  READY  TIME   REASON\nweb  Running  0/1    1.00s  as before\n",
		},
		{
			"no room for a message",
			[]runonce.Result{with(running("web", ""), func(r *runonce.Result) { r.Reason, r.Message = "Odd", long })},
			"POD  OUTCOME  READY  TIME   REASON\nweb  Running  0/1    1.00s  Odd\n\ndefault/web: Running, Odd (pods/web.yaml:1)\n  " + long + "\n",
		},
		{
			"the reason is in the message",
			[]runonce.Result{{Pod: pod("web", "a"), Outcome: runonce.Rejected, Reason: "AppArmor", Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"}},
			"POD  OUTCOME   READY  TIME  REASON\nweb  Rejected  0/1    -     AppArmor\n\n" +
				"default/web: Rejected, AppArmor (pods/web.yaml:1)\n  Cannot enforce AppArmor: AppArmor is not enabled on the host\n",
		},
		{
			"the reason starts the message",
			[]runonce.Result{{Pod: pod("web", "a"), Outcome: runonce.TimedOut, Reason: "ErrImagePull", Message: "ErrImagePull: pulling: ErrImagePull: no such host"}},
			"POD  OUTCOME   READY  TIME  REASON\nweb  TimedOut  0/1    -     ErrImagePull\n\n" +
				"default/web: TimedOut, ErrImagePull (pods/web.yaml:1)\n  pulling: ErrImagePull: no such host\n",
		},
		{
			"a log that is empty",
			[]runonce.Result{{
				Pod: pod("web", "a"), Outcome: runonce.Failed, Reason: "Error", Message: "exit code 1",
				Containers: []runonce.Container{{Name: "a", ExitCode: code(1), LogPath: "/log/a/0.log"}, {Name: "b", ExitCode: code(0), LogPath: "/log/b/0.log"}},
			}},
			"POD  OUTCOME  READY  TIME  REASON\nweb  Failed   0/1    -     Error\n\ndefault/web: Failed, Error (pods/web.yaml:1)\n" +
				"  exit code 1\n  container \"a\", exit code 1, log: /log/a/0.log\n",
		},
		{
			"a container that is not ready in time",
			[]runonce.Result{{
				Pod: pod("web", "a"), Outcome: runonce.TimedOut, Reason: "ContainersNotReady", Message: "not ready",
				Containers: []runonce.Container{{Name: "a", State: "Running", LogPath: "/log/a/0.log"}},
			}},
			"POD  OUTCOME   READY  TIME  REASON\nweb  TimedOut  0/1    -     ContainersNotReady\n\ndefault/web: TimedOut, ContainersNotReady (pods/web.yaml:1)\n" +
				"  not ready\n  container \"a\", log: /log/a/0.log\n",
		},
		{
			"containers that have run before and are not ready in time",
			[]runonce.Result{{
				Pod: pod("web", "a", "b"), Outcome: runonce.TimedOut, Reason: "ContainersNotReady", Message: "not ready",
				Containers: []runonce.Container{
					{Name: "a", State: "Running", ExitCode: code(0), LogPath: "/log/a/1.log"},
					{Name: "b", State: "Waiting", LogPath: "/log/b/0.log"}, // its hook runs
				},
			}},
			"POD  OUTCOME   READY  TIME  REASON\nweb  TimedOut  0/2    -     ContainersNotReady\n\ndefault/web: TimedOut, ContainersNotReady (pods/web.yaml:1)\n" +
				"  not ready\n  container \"a\", log: /log/a/1.log\n  container \"b\", log: /log/b/0.log\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, tableOf(t, c.results...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestOOMKills: processes that were killed for want of memory are named, whatever became of the container. The wide style
// has what the containers of a pod have used together, and the most memory of one.
func TestOOMKills(t *testing.T) {
	t.Parallel()
	limited := func(name string, containers ...string) *v1.Pod {
		p := pod(name, containers...)
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}
		return p
	}
	used := func(kills int64) podusage.Total {
		return podusage.Total{CPUSeconds: new(1.25), PeakMemoryBytes: new(kills << 20), OOMKills: &kills}
	}
	whole := limited("whole", "a")
	whole.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	whole.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}
	results := []runonce.Result{
		{
			Pod: limited("job", "a"), Outcome: runonce.Succeeded, Reason: "OOMKilled", Message: `container "a" exited with code 0, but one of its processes was OOM-killed`,
			Containers: []runonce.Container{{Name: "a", State: "Terminated", ExitCode: code(0), Usage: used(1)}},
		},
		{Pod: limited("web", "a", "b"), Outcome: runonce.Running, Containers: []runonce.Container{
			{Name: "a", State: "Running", ExitCode: code(1), Usage: used(3)}, {Name: "b", State: "Running", Usage: used(2)},
		}},
		{Pod: whole, Outcome: runonce.Running, Containers: []runonce.Container{{Name: "a", State: "Running", Usage: used(1)}}},
		{Pod: limited("fine", "a"), Outcome: runonce.Succeeded, Containers: []runonce.Container{{Name: "a", State: "Terminated", ExitCode: code(0), Usage: used(0)}}},
		{Pod: limited("old", "a"), Outcome: runonce.Succeeded, Containers: []runonce.Container{{Name: "a", State: "Terminated", ExitCode: code(0)}}},
	}
	const details = `
default/job: Succeeded, OOMKilled (pods/job.yaml:1)
  container "a": the kernel's OOM killer ended 1 process in it (limit 64Mi); the container itself exited with 0

default/web: Running (pods/web.yaml:1)
  container "a": the kernel's OOM killer ended 3 processes in it (limit 64Mi); the container itself still runs
  container "b": the kernel's OOM killer ended 2 processes in it (it has no limit); the container itself still runs

default/whole: Running (pods/whole.yaml:1)
  container "a": the kernel's OOM killer ended 1 process in it (limit of the pod 1Gi); the container itself still runs
`
	want := `POD    OUTCOME    READY  TIME  REASON
job    Succeeded  0/1    -     OOMKilled
web    Running    0/2    -     -
whole  Running    0/1    -     -
fine   Succeeded  0/1    -     -
old    Succeeded  0/1    -     -
` + details
	if diff := cmp.Diff(want, tableOf(t, results...)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var b strings.Builder
	if err := report.New(results[1:], 0, 0).Table(&b, report.Style{Wide: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"PORTS  CPU    PEAK MEMORY  SOURCE", "-      2.50s  3Mi          pods/web.yaml:1", "-      1.25s  0Ki          pods/fine.yaml:1", "-      -      -            pods/old.yaml:1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestEarlierRun: a result of an earlier run says so, and how long ago the pod ended.
func TestEarlierRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		got := tableOf(t,
			runonce.Result{Pod: pod("job", "a"), Outcome: runonce.Succeeded, EarlierRun: true, Finished: ago(5 * time.Hour), Message: "from an earlier run"},
			runonce.Result{
				Pod: pod("bad", "a"), Outcome: runonce.Failed, Reason: "Error",
				EarlierRun: true, Finished: ago(90 * time.Second), Message: "exit code 1; from an earlier run",
			},
			runonce.Result{
				Pod: pod("web", "a"), Outcome: runonce.Running, EarlierRun: true,
				Status: v1.PodStatus{StartTime: &metav1.Time{Time: ago(10 * time.Minute)}},
			},
		)
		want := "POD  OUTCOME    READY  TIME  REASON\n" +
			"job  Succeeded  0/1    -     earlier run 5h ago: --rerun runs it again\n" +
			"bad  Failed     0/1    -     Error, earlier run 90s ago\n" +
			"web  Running    0/1    -     earlier run 10m ago\n" +
			"\ndefault/bad: Failed, Error (pods/bad.yaml:1)\n  exit code 1; from an earlier run\n"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
