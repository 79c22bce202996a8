package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

var update = flag.Bool("update", false, "write the golden files again")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func pod(name string, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name),
		Annotations: map[string]string{"runonce/source": "pods/" + name + ".yaml:1"},
	}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c, Image: "app:1"})
	}
	return p
}

func code(n int32) *int32 { return &n }

func results() []runonce.Result {
	critical := pod("dns", "dns")
	critical.Namespace = "kube-system"
	return []runonce.Result{
		{
			Pod: pod("web", "app", "proxy"), Outcome: runonce.Running, Attempts: 1, Elapsed: 350 * time.Millisecond,
			Phases: []runonce.Phase{{Name: "sandbox", Start: 10 * time.Millisecond, Elapsed: 20 * time.Millisecond}},
			Containers: []runonce.Container{
				{Name: "app", Image: "app:1", State: "Running", LogPath: "/var/log/pods/default_web_uid-web/app/0.log"},
				{Name: "proxy", Image: "app:1", State: "Running", Restarts: 1, ExitCode: code(2)},
			},
			Status: v1.PodStatus{
				Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: "10.88.0.2"}, {IP: "fd00::2"}},
				ContainerStatuses: []v1.ContainerStatus{{Name: "app", Ready: true}, {Name: "proxy"}},
			},
		},
		{
			Pod: pod("crash", "main"), Outcome: runonce.Failed, Reason: "Error", Message: `container "main" exited with code 3`,
			Attempts: 1, Elapsed: 65 * time.Second,
			Containers: []runonce.Container{{
				Name: "main", Image: "app:1", State: "Terminated", ExitCode: code(3),
				LogPath: "/var/log/pods/default_crash_uid-crash/main/0.log", LogTail: []string{"starting", "\x1b[31mno config\a\tfound"},
			}},
			Status: v1.PodStatus{Phase: v1.PodFailed},
		},
		{
			Pod: pod("big", "main"), Outcome: runonce.Rejected, Reason: "OutOfcpu",
			Message: "Node didn't have enough resource: cpu, requested: 100000, used: 0, capacity: 2000, and some more words to make it long",
		},
		{Pod: pod("small", "main"), Outcome: runonce.Preempted, Reason: "Preempting", Message: "Preempted in order to admit critical pod", By: critical},
		{
			Pod: pod("job", "main"), Outcome: runonce.Succeeded, Attempts: 1, Elapsed: 12*time.Second + 345*time.Millisecond,
			RemoveError: "busy", Status: v1.PodStatus{Phase: v1.PodSucceeded},
		},
		{Outcome: runonce.Invalid, Reason: "Invalid", Message: "pods/bad.yaml:3: spec.containers: Required value\nsecond line"},
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := report.New(results(), 1, 65432*time.Millisecond+900*time.Microsecond)
	for _, c := range []struct {
		file  string
		write func(*bytes.Buffer) error
	}{
		{"report.table", func(b *bytes.Buffer) error { return r.Table(b, report.Style{}) }},
		{"report.wide", func(b *bytes.Buffer) error { return r.Table(b, report.Style{Wide: true}) }},
		{"report.color", func(b *bytes.Buffer) error { return r.Table(b, report.Style{Color: true}) }},
		{"report.json", func(b *bytes.Buffer) error { return report.JSON(b, r) }},
		{"report.yaml", func(b *bytes.Buffer) error { return report.YAML(b, r) }},
		{"report.xml", func(b *bytes.Buffer) error { return r.JUnit(b) }},
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
}

// TestNoNulls: lists in documents are never null.
func TestNoNulls(t *testing.T) {
	t.Parallel()
	in := results()
	in[0].Containers[0].LogTail = nil
	for name, document := range map[string]any{
		"report": report.New(in, 0, 0), "no pods": report.New(nil, 0, 0),
		"plan": report.NewPlan(plan()), "no plan": report.NewPlan(admit.Plan{}), "ps": report.NewPods([]*v1.Pod{pod("a")}),
	} {
		data, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), `"exitCode":null`, "")
		text = strings.ReplaceAll(text, `"startTime":null`, "")
		if strings.Contains(text, "null") {
			t.Errorf("%s has a null: %s", name, text)
		}
	}
}

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
			{Pod: asking("web", "250m", "64Mi"), Verdict: admit.Admitted, Replaces: old},
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

func TestPods(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	start := metav1.NewTime(now.Add(-90 * time.Second))
	web, job := pod("web", "app"), pod("job", "main")
	web.Status = v1.PodStatus{
		Phase: v1.PodRunning, StartTime: &start, PodIPs: []v1.PodIP{{IP: "10.88.0.2"}},
		InitContainerStatuses: []v1.ContainerStatus{{Name: "prepare", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}}},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "app", RestartCount: 2, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
		}},
	}
	job.Status = v1.PodStatus{
		Phase:             v1.PodFailed,
		ContainerStatuses: []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}},
	}
	p := report.NewPods([]*v1.Pod{web, job})
	for file, write := range map[string]func(*bytes.Buffer) error{
		"ps.table": func(b *bytes.Buffer) error { return p.Table(b, report.Style{}, now) },
		"ps.wide":  func(b *bytes.Buffer) error { return p.Table(b, report.Style{Wide: true}, now) },
		"ps.json":  func(b *bytes.Buffer) error { return report.JSON(b, p) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.Bytes())
	}
}

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
