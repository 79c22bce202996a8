package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// diarist returns the manifest of a pod whose container writes a diary into the directory: when
// it starts, when it gets SIGTERM, and when it exits half a second later.
func diarist(name, dir, spec, resources string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 30
  %[3]s
  containers:
  - name: main
    image: localhost/box:1
    args: [diary, /diaries/%[1]s, 500ms]
    resources: %[4]s
    volumeMounts: [{name: diaries, mountPath: /diaries}]
  volumes: [{name: diaries, hostPath: {path: %[2]s}}]
`, name, dir, spec, resources)
}

// diary reads a pod's diary: the events in order, and the time of each.
func diary(t *testing.T, dir, name string) (happened []string, at map[string]int64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	at = map[string]int64{}
	for line := range strings.Lines(string(text)) {
		what, when, _ := strings.Cut(strings.TrimSpace(line), " ")
		happened = append(happened, what)
		if at[what], err = strconv.ParseInt(when, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return happened, at
}

// preempted is a victim in the report.
type preempted struct {
	Name        string `json:"name"`
	Outcome     string `json:"outcome"`
	Reason      string `json:"reason"`
	Message     string `json:"message"`
	PreemptedBy string `json:"preemptedBy"`
	Status      struct {
		Phase      string `json:"phase"`
		Reason     string `json:"reason"`
		Message    string `json:"message"`
		Conditions []struct {
			Type    string `json:"type"`
			Status  string `json:"status"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

// wantVictim returns the status that the kubelet would set (pkg/kubelet/preemption).
func wantVictim(name string) preempted {
	p := preempted{Name: name, Outcome: "Preempted", Reason: "Preempting", Message: "Preempted in order to admit critical pod", PreemptedBy: "default/critical"}
	p.Status.Phase, p.Status.Reason, p.Status.Message = "Failed", p.Reason, p.Message
	p.Status.Conditions = append(p.Status.Conditions, struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}{"DisruptionTarget", "True", "TerminationByKubelet", "Pod was preempted by Kubelet to accommodate a critical pod."})
	return p
}

// smallPods returns ten pods. A critical pod needs the memory of three of them. Of the five with
// the lowest priority, small1 is Guaranteed and small8 requests more memory than needed, so
// small2, small5 and small7 are preempted.
func smallPods(dir string) []string {
	all := []string{"{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: better}, value: 1000}"}
	for i := range 10 {
		name, spec, resources := fmt.Sprintf("small%d", i), "", "{requests: {memory: 100Mi}}"
		switch i {
		case 1:
			resources = "{limits: {memory: 100Mi, cpu: 10m}}"
		case 2, 5, 7:
		case 8:
			resources = "{requests: {memory: 101Mi}}"
		default:
			spec = "priorityClassName: better"
		}
		all = append(all, diarist(name, dir, spec, resources))
	}
	return all
}

func TestCriticalPodPreempts(t *testing.T) {
	test := func(t *testing.T, b *box) {
		dir := t.TempDir()
		capacity := []string{"--capacity", "cpu=4,memory=1150Mi,pods=20"}
		b.up(t, directory(t, smallPods(dir)...), 0, capacity...)
		awaitDiaries(t, dir, 10)
		critical := diarist("critical", dir, "priorityClassName: system-node-critical", "{requests: {memory: 300Mi}}")
		got := b.up(t, directory(t, critical), 3, capacity...)
		if diff := cmp.Diff([]string{"critical=Running", "small2=Preempted", "small5=Preempted", "small7=Preempted"}, slices.Sorted(slices.Values(got.report.outcomes()))); diff != "" {
			t.Fatalf("outcomes (-want +got):\n%s", diff)
		}
		var report struct {
			Results []preempted `json:"results"`
		}
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			t.Fatal(err)
		}
		want := []preempted{wantVictim("small2"), wantVictim("small5"), wantVictim("small7")}
		victims := report.Results[1:] // in the order in which they were started
		slices.SortFunc(victims, func(a, b preempted) int { return strings.Compare(a.Name, b.Name) })
		if diff := cmp.Diff(want, victims); diff != "" {
			t.Errorf("the victims (-want +got):\n%s", diff)
		}
		b.checkDiaries(t, dir)
	}
	embedded(t, test)
	daemons(t, test, daemon.Current)
}

// awaitDiaries waits until n pods have begun their diaries.
func awaitDiaries(t *testing.T, dir string, n int) {
	t.Helper()
	begun := func() (count int) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if text, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil && strings.HasSuffix(string(text), "\n") {
				count++
			}
		}
		return count
	}
	if !eventually(func() bool { return begun() == n }) {
		t.Fatalf("%d pods have begun their diary, want %d", begun(), n)
	}
}

// checkDiaries checks that the victims were stopped gracefully and had exited before the
// critical pod started, and that the other pods were not affected.
func (b *box) checkDiaries(t *testing.T, dir string) {
	t.Helper()
	awaitDiaries(t, dir, 11)
	_, critical := diary(t, dir, "critical")
	for i := range 10 {
		name := fmt.Sprintf("small%d", i)
		happened, at := diary(t, dir, name)
		want := []string{"start"}
		if slices.Contains([]int{2, 5, 7}, i) {
			want = []string{"start", "term", "end"}
			if at["end"] >= critical["start"] {
				t.Errorf("%s ended at %d, after the critical pod had started at %d", name, at["end"], critical["start"])
			}
		}
		if diff := cmp.Diff(want, happened); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if !eventually(func() bool { return len(b.containers(t)) == 8 }) {
		t.Errorf("want 8 containers left:\n%s", strings.Join(b.containers(t), "\n"))
	}
}
