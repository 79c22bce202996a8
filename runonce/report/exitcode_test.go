package report_test

import (
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		outcomes []runonce.Outcome
		remove   string
		signal   syscall.Signal
		want     int
	}{
		{"nothing", nil, "", 0, 0},
		{"all well", []runonce.Outcome{runonce.Running, runonce.Ready, runonce.Succeeded}, "", 0, 0},
		{"all well just before the signal", []runonce.Outcome{runonce.Running}, "", syscall.SIGTERM, 0},
		{"failed", []runonce.Outcome{runonce.Running, runonce.Failed}, "", 0, 1},
		{"timed out", []runonce.Outcome{runonce.TimedOut}, "", 0, 1},
		{"invalid", []runonce.Outcome{runonce.Invalid}, "", 0, 1},
		{"rejected", []runonce.Outcome{runonce.Running, runonce.Rejected}, "", 0, 3},
		{"preempted", []runonce.Outcome{runonce.Preempted, runonce.Running}, "", 0, 3},
		{"failed beats rejected", []runonce.Outcome{runonce.Failed, runonce.Rejected}, "", 0, 1},
		{"whatever the order", []runonce.Outcome{runonce.Rejected, runonce.Failed, runonce.Rejected}, "", 0, 1},
		{"not removed", []runonce.Outcome{runonce.Succeeded}, "busy", 0, 1},
		{"SIGINT", []runonce.Outcome{runonce.Failed, runonce.Canceled}, "", syscall.SIGINT, 130},
		{"SIGTERM", []runonce.Outcome{runonce.Canceled, runonce.Rejected}, "", syscall.SIGTERM, 143},
		{"canceled by nobody known", []runonce.Outcome{runonce.Canceled}, "", 0, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			results := make([]runonce.Result, 0, len(c.outcomes))
			for _, o := range c.outcomes {
				results = append(results, runonce.Result{Outcome: o, RemoveError: c.remove})
			}
			if got := report.ExitCode(results, c.signal); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestExitCodeOfFailFast: pods that were canceled because another one failed are no interrupt.
func TestExitCodeOfFailFast(t *testing.T) {
	t.Parallel()
	results := []runonce.Result{{Outcome: runonce.Canceled, Reason: runonce.ReasonFailFast}, {Outcome: runonce.Failed}}
	if got := report.ExitCode(results, 0); got != report.ExitFailed {
		t.Errorf("got %d", got)
	}
}

func TestExitCodeFrom(t *testing.T) {
	t.Parallel()
	code := func(n int32) *int32 { return &n }
	pod := func(namespace, name string, containers ...string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c})
		}
		return p
	}
	results := []runonce.Result{
		{Pod: pod("default", "test", "unit", "lint"), Containers: []runonce.Container{
			{Name: "prepare", ExitCode: code(9)}, {Name: "unit", ExitCode: code(0)}, {Name: "lint", ExitCode: code(7)},
		}},
		{Pod: pod("default", "web", "app"), Containers: []runonce.Container{{Name: "app"}}},
		{Pod: pod("ci", "build", "make"), Containers: []runonce.Container{{Name: "make", ExitCode: code(4)}}},
		{Pod: pod("default", "again", "app", "side"), Containers: []runonce.Container{
			{Name: "app", State: "Running", ExitCode: code(5)}, {Name: "side", State: "Terminated", ExitCode: code(0)},
		}},
		{Pod: pod("default", "looping", "app"), Containers: []runonce.Container{{Name: "app", State: "Waiting", ExitCode: code(6)}}},
		{Pod: pod("default", "big", "x"), Outcome: runonce.Rejected},
		{
			Pod: pod("default", "late", "x", "y"), Outcome: runonce.Failed, Reason: "DeadlineExceeded", Status: v1.PodStatus{Reason: "DeadlineExceeded"},
			Containers: []runonce.Container{{Name: "x", ExitCode: code(0)}, {Name: "y", ExitCode: code(143)}},
		},
		{
			Pod: pod("default", "lean", "x", "y"), Outcome: runonce.Failed, Reason: "OOMKilled",
			Containers: []runonce.Container{{Name: "prepare", ExitCode: code(0), ExitReason: "OOMKilled"}},
		},
		{Pod: pod("default", "tight", "x"), Outcome: runonce.Succeeded, Containers: []runonce.Container{{Name: "x", ExitCode: code(0), ExitReason: "OOMKilled"}}},
		{Pod: pod("default", "low", "x"), Outcome: runonce.Preempted, Reason: "Preempting", Containers: []runonce.Container{{Name: "x", ExitCode: code(0)}}},
	}
	for _, c := range []struct {
		ref  string
		want int
		err  string
	}{
		{"test", 7, ""},
		{"test/unit", 0, ""},
		{"test/prepare", 9, ""},
		{"ci/build", 4, ""},
		{"ci/build/make", 4, ""},
		{"default/test/lint", 7, ""},
		{"web", 0, `container "app" has not exited`},
		{"again", 0, `container "app" has not exited`},
		{"again/side", 0, ""},
		{"looping", 6, ""},
		{"test/none", 0, `has no container "none"`},
		{"big", 0, "was not started (Rejected)"},
		{"late", 143, ""},
		{"late/x", 0, "the pod was stopped (DeadlineExceeded)"},
		{"lean/prepare", 0, `container "prepare" was OOM-killed but exited with 0`},
		{"tight", 0, ""},
		{"low", 0, "the pod was stopped (Preempting)"},
		{"none", 0, "no such pod"},
		{"a/b/c/d", 0, "no such pod"},
	} {
		t.Run(c.ref, func(t *testing.T) {
			t.Parallel()
			got, err := report.ExitCodeFrom(results, c.ref)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got error %v, want %q in it", err, c.err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("got %d, %v, want %d", got, err, c.want)
			}
		})
	}
}

func TestExitCodeSource(t *testing.T) {
	t.Parallel()
	pod := func(namespace, name string, containers ...string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c})
		}
		return p
	}
	pods := []*v1.Pod{pod("default", "test", "unit"), pod("ci", "build", "make"), pod("", "invalid")}
	pods[0].Spec.InitContainers = []v1.Container{{Name: "prepare"}}
	for ref, want := range map[string]string{
		"test": "", "test/unit": "", "test/prepare": "", "default/test": "", "default/test/unit": "", "ci/build/make": "",
		"invalid": "", "invalid/any": "",
		"tset":           `no pod "tset" in the input`,
		"default/build":  `no pod "default/build" in the input`,
		"test/make":      `pod "test" has no container "make"`,
		"ci/build/unit":  `pod "build" has no container "unit"`,
		"a/test/unit/no": `no pod "a/test/unit/no" in the input`,
		"/":              `no pod "/" in the input`,
	} {
		got := ""
		if _, _, err := report.ExitCodeSource(pods, ref); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", ref, got, want)
		}
	}
}

// TestExitCodeOfDependents: a pod that has not started because of another one counts as that does, and an
// optional one not at all, unless the run was interrupted or could not remove it.
func TestExitCodeOfDependents(t *testing.T) {
	t.Parallel()
	optional := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"runonce/optional": "true"}}}
	dependent := func(cause runonce.Outcome) runonce.Result {
		return runonce.Result{Outcome: runonce.Canceled, Reason: runonce.ReasonDependencyFailed, Cause: cause}
	}
	of := func(pod *v1.Pod, r runonce.Result) runonce.Result {
		r.Pod = pod
		return r
	}
	for _, c := range []struct {
		name    string
		results []runonce.Result
		want    int
	}{
		{"of a failed pod", []runonce.Result{dependent(runonce.Failed)}, 1},
		{"of one that timed out", []runonce.Result{dependent(runonce.TimedOut)}, 1},
		{"of an invalid one", []runonce.Result{dependent(runonce.Invalid)}, 1},
		{"of a rejected one", []runonce.Result{dependent(runonce.Rejected)}, 3},
		{"of a preempted one", []runonce.Result{dependent(runonce.Preempted)}, 3},
		{"of a removed one", []runonce.Result{dependent(runonce.Removed)}, 0},
		{"optional", []runonce.Result{of(optional, runonce.Result{Outcome: runonce.Failed}), of(optional, runonce.Result{Outcome: runonce.Rejected}), of(optional, dependent(runonce.Failed))}, 0},
		{"optional and not", []runonce.Result{of(optional, runonce.Result{Outcome: runonce.Failed}), {Outcome: runonce.Rejected}}, 3},
		{"of an optional one", []runonce.Result{of(optional, runonce.Result{Outcome: runonce.Failed}), dependent(runonce.Failed)}, 1},
		{"optional when interrupted", []runonce.Result{of(optional, runonce.Result{Outcome: runonce.Canceled})}, 130},
		{"optional and not removed", []runonce.Result{of(optional, runonce.Result{Outcome: runonce.Succeeded, RemoveError: "busy"})}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := report.ExitCode(c.results, 0); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestJUnitOfDependents: what keeps a run from success is a failure, and nothing else.
func TestJUnitOfDependents(t *testing.T) {
	t.Parallel()
	optional := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "lint", Annotations: map[string]string{"runonce/optional": "true"}}}
	web := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	r := report.New([]runonce.Result{
		{Pod: optional, Outcome: runonce.Failed, Reason: "Error", Message: "exited with code 1"},
		{Pod: web, Outcome: runonce.Canceled, Reason: runonce.ReasonDependencyFailed, Message: `pod "lint" failed`},
		{Pod: web, Outcome: runonce.Canceled, Reason: runonce.ReasonFailFast, Message: "the run ended"},
		{Pod: optional, Outcome: runonce.Succeeded, RemoveError: "busy"},
	}, 1, 0)
	var b strings.Builder
	if err := r.JUnit(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`tests="4" failures="2" errors="0"`, `<skipped message="optional: Error: exited with code 1">`,
		`<failure type="Canceled" message="DependencyFailed: pod &#34;lint&#34; failed">`, `<skipped message="FailFast: the run ended">`,
		`<failure type="NotRemoved" message="busy">`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, b.String())
		}
	}
}
