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
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/manifests/decode"
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
			Phases: []runonce.Phase{
				{Name: "sandbox", Start: 10 * time.Millisecond, Elapsed: 20 * time.Millisecond},
				{Name: "image app", Start: 30 * time.Millisecond, Elapsed: 120 * time.Millisecond},
				{Name: "start app", Start: 150 * time.Millisecond, Elapsed: 60 * time.Millisecond},
			},
			Containers: []runonce.Container{
				{Name: "app", Image: "app:1", State: "Running", LogPath: "/var/log/pods/default_web_uid-web/app/0.log", Output: []string{"the end of app"}},
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

// TestJUnitOfEarlierRun: a passed test case whose pod was not started now says so.
func TestJUnitOfEarlierRun(t *testing.T) {
	t.Parallel()
	r := report.New([]runonce.Result{{
		Pod: pod("job", "main"), Outcome: runonce.Succeeded, EarlierRun: true, Message: "from an earlier run, finished 2m ago",
	}}, 0, time.Second)
	var b bytes.Buffer
	if err := r.JUnit(&b); err != nil {
		t.Fatal(err)
	}
	if want := "<system-out>from an earlier run, finished 2m ago"; !strings.Contains(b.String(), want) {
		t.Errorf("%s\nwant %s", &b, want)
	}
}

// TestJUnitOfOOMKilled: a passed test case says that a process was killed.
func TestJUnitOfOOMKilled(t *testing.T) {
	t.Parallel()
	message := `container "main" exited with code 0, but one of its processes was OOM-killed`
	r := report.New([]runonce.Result{{Pod: pod("job", "main"), Outcome: runonce.Succeeded, Reason: "OOMKilled", Message: message}}, 0, time.Second)
	var b bytes.Buffer
	if err := r.JUnit(&b); err != nil {
		t.Fatal(err)
	}
	if want := "<system-out>OOMKilled: container "; !strings.Contains(b.String(), want) {
		t.Errorf("%s\nwant %s", &b, want)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := report.New(results(), 1, 65432*time.Millisecond+900*time.Microsecond)
	unreadable := report.New(nil, 2, time.Second)
	unreadable.Faults = decode.Diagnostics{{File: "a.yaml", Line: 3, Field: "spec", Message: "Required value"}, {File: "b.yaml", Line: 1, Field: "kind", Message: "unknown"}}
	for _, c := range []struct {
		file  string
		write func(*bytes.Buffer) error
	}{
		{"report.table", func(b *bytes.Buffer) error { return r.Table(b, report.Style{}) }},
		{"report.wide", func(b *bytes.Buffer) error { return r.Table(b, report.Style{Wide: true}) }},
		{"report.color", func(b *bytes.Buffer) error { return r.Table(b, report.Style{Color: true}) }},
		{"report.json", func(b *bytes.Buffer) error { return report.JSON(b, r) }},
		{"report.yaml", func(b *bytes.Buffer) error { return report.YAML(b, r, false) }},
		{"report.svg", func(b *bytes.Buffer) error { return r.Timeline(b) }},
		{"report.xml", func(b *bytes.Buffer) error { return r.JUnit(b) }},
		{"failure.xml", func(b *bytes.Buffer) error { return unreadable.JUnit(b) }},
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
		"plan": report.NewPlan(plan()), "no plan": report.NewPlan(admit.Plan{}), "ps": report.NewPods([]report.PodState{{Pod: pod("a")}}),
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

// TestYAMLOfAnyText: a log may have characters that YAML does not allow.
func TestYAMLOfAnyText(t *testing.T) {
	t.Parallel()
	var all []rune
	for r := range rune(0x11000) {
		if utf8.ValidRune(r) {
			all = append(all, r)
		}
	}
	var out bytes.Buffer
	if err := report.YAML(&out, map[string]string{"text": string(all)}, false); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := yaml.Unmarshal(out.Bytes(), &got); err != nil || got["text"] != string(all) {
		t.Errorf("%v: another text", err)
	}
}
