package report_test

import (
	"bytes"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce/report"
)

func plan() admit.Plan {
	list := func(cpu, memory, pods string) v1.ResourceList {
		l := v1.ResourceList{}
		for name, text := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory, v1.ResourcePods: pods} {
			if text != "" {
				l[name] = resource.MustParse(text)
			}
		}
		return l
	}
	asking := func(name, cpu, memory string) *v1.Pod {
		p := pod(name, "main")
		p.Spec.Containers[0].Resources.Requests = list(cpu, memory, "")
		return p
	}
	boss := asking("boss", "1", "1Gi")
	priority := int32(2_000_001_000)
	boss.Spec.Priority = &priority
	old := asking("web", "500m", "64Mi")
	old.UID = "uid-old"
	return admit.Plan{
		Node:    &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}, Status: v1.NodeStatus{Allocatable: list("2", "4Gi", "110")}},
		Optimal: true, Used: list("1250m", "1120Mi", "3"),
		Decisions: []admit.Decision{
			{Pod: asking("web", "250m", "64Mi"), Verdict: admit.Admitted, Replaces: []*v1.Pod{old}},
			{Pod: boss, Verdict: admit.Admitted},
			{Pod: asking("kept", "", "32Mi"), Verdict: admit.Admitted, Running: true},
			{
				Pod: asking("big", "100", ""), Verdict: admit.Rejected, Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu",
				Reasons: []admit.Reason{{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu"}, {Reason: "NodeAffinity", Message: "Predicate NodeAffinity failed"}},
			},
			{Pod: asking("small", "1", ""), Verdict: admit.Preempted, Running: true, By: boss, Reason: "Preempting", Message: "Preempted in order to admit critical pod"},
			{Pod: asking("gone", "1", ""), Verdict: admit.Admitted, Prune: true},
		},
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	p := report.NewPlan(plan())
	cut := plan()
	cut.Optimal = false
	for name, n := range map[v1.ResourceName]string{"vendor.com/gpu": "2", "hugepages-2Mi": "0", v1.ResourceEphemeralStorage: "8Gi"} {
		cut.Node.Status.Allocatable[name] = resource.MustParse(n)
	}
	cut.Used["vendor.com/gpu"] = resource.MustParse("1")
	for _, c := range []struct {
		file  string
		write func(*bytes.Buffer) error
	}{
		{"plan.table", func(b *bytes.Buffer) error { return p.Table(b, report.Style{}) }},
		{"plan-cut.table", func(b *bytes.Buffer) error { return report.NewPlan(cut).Table(b, report.Style{}) }},
		{"plan.wide", func(b *bytes.Buffer) error { return p.Table(b, report.Style{Wide: true}) }},
		{"plan.json", func(b *bytes.Buffer) error { return report.JSON(b, p) }},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := c.write(&b); err != nil {
				t.Fatal(err)
			}
			golden(t, c.file, b.Bytes())
		})
	}
	if got := p.ExitCode(); got != 3 {
		t.Errorf("exit code %d, want 3", got)
	}
	if got := report.NewPlan(admit.Plan{}).ExitCode(); got != 0 {
		t.Errorf("exit code of an empty plan %d, want 0", got)
	}
}

// TestPlanNamesPulls: the images to pull are shown only if there are some.
func TestPlanNamesPulls(t *testing.T) {
	t.Parallel()
	for want, pulls := range map[string][]string{"": nil, "\nIMAGES TO PULL\nlocalhost/a:1\n": {"localhost/a:1"}} {
		var b strings.Builder
		p := report.NewPlan(plan())
		p.Pulls = pulls
		if err := p.Table(&b, report.Style{}); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasSuffix(got, want) || (want == "" && strings.Contains(got, "PULL")) {
			t.Errorf("table = %q, want it to end in %q", got, want)
		}
	}
}

// TestPlanOfEndedPods: a plan says what a run does with pods that ended in an earlier one.
func TestPlanOfEndedPods(t *testing.T) {
	t.Parallel()
	p := pod("job", "main")
	was := func(phase v1.PodPhase) *v1.Pod {
		earlier := p.DeepCopy()
		earlier.Status.Phase = phase
		return earlier
	}
	for _, c := range []struct {
		name            string
		decision        admit.Decision
		action, message string
	}{
		{"failed", admit.Decision{Replaces: []*v1.Pod{was(v1.PodFailed)}}, "rerun", "failed in an earlier run"},
		{"succeeded", admit.Decision{Running: true, Earlier: was(v1.PodSucceeded)}, "keep", "succeeded in an earlier run; --rerun runs it again"},
		{"succeeded, to run again", admit.Decision{Replaces: []*v1.Pod{was(v1.PodSucceeded)}}, "rerun", "succeeded in an earlier run"},
		{"runs", admit.Decision{Running: true, Earlier: was(v1.PodRunning)}, "keep", ""},
		{"runs, to be replaced", admit.Decision{Replaces: []*v1.Pod{was(v1.PodRunning)}}, "replace", ""},
		{"runs twice", admit.Decision{Running: true, Earlier: was(v1.PodRunning), Replaces: []*v1.Pod{pod("job")}}, "keep", "another version of the pod is stopped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.decision.Pod, c.decision.Verdict = p, admit.Admitted
			got := report.NewPlan(admit.Plan{Decisions: []admit.Decision{c.decision}}).Decisions[0]
			if got.Action != c.action || got.Message != c.message {
				t.Errorf("%s: %q", got.Action, got.Message)
			}
		})
	}
}

// TestPlanRuntime: a wide table says which OCI runtime pods would have, and why.
func TestPlanRuntime(t *testing.T) {
	t.Parallel()
	p := report.NewPlan(admit.Plan{})
	p.Runtime = &report.Runtime{Path: "/usr/sbin/runc", Reason: "crun is not installed"}
	for _, wide := range []bool{false, true} {
		var b bytes.Buffer
		if err := p.Table(&b, report.Style{Wide: wide}); err != nil {
			t.Fatal(err)
		}
		if got := strings.HasSuffix(b.String(), "\nOCI RUNTIME\n/usr/sbin/runc, since crun is not installed\n"); got != wide {
			t.Errorf("wide %t:\n%s", wide, &b)
		}
	}
}
