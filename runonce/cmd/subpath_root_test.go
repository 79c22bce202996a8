package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// racing is a pod in which one container swaps a directory of a volume for a link to a
// directory of the host, again and again, while others are started on it.
func racing(dir string, others int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Pod
metadata: {name: race}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  volumes: [{name: work, emptyDir: {}}]
  initContainers:
  - {name: swaps, image: "localhost/box:1", restartPolicy: Always, args: [swap, /data/dir, %s], volumeMounts: [{name: work, mountPath: /data}]}
  containers:
`, dir)
	for i := range others {
		fmt.Fprintf(&b, `  - {name: c%d, image: "localhost/box:1", args: [gone, /mnt/secret], volumeMounts: [{name: work, mountPath: /mnt, subPath: dir}]}
`, i)
	}
	return b.String()
}

// TestSubPathRace: a container that swaps a subPath for a link to the host while others are
// started on it never has one of them see the host.
func TestSubPathRace(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "secret"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		refused, started := 0, 0
		for round := range 3 {
			// The outcome is a matter of chance, what the containers saw is not.
			_, out := m.try(t, "run", "--until", "completed", "--max-retries", "0", "--timeout", "5m", "-o", "json",
				written(t, strings.Replace(racing(dir, 10), "name: race", fmt.Sprintf("name: race-%d", round), 1), ""))
			for _, s := range statuses(t, out) {
				switch w, end := s.State.Waiting, s.State.Terminated; {
				case !strings.HasPrefix(s.Name, "c"):
				case w != nil && strings.Contains(w.Message, "failed to prepare subPath"):
					refused++
				case end != nil && end.ExitCode != 0:
					t.Errorf("round %d: %s saw the host: exit code %d", round, s.Name, end.ExitCode)
				case end != nil:
					started++
				}
			}
			m.once(t, "down", "--all")
		}
		t.Logf("%d refused, %d started inside the volume", refused, started)
		if refused+started == 0 {
			t.Error("no container was put to the test")
		}
	})
}

// statuses returns those of all containers in a report.
func statuses(t *testing.T, out string) []v1.ContainerStatus {
	t.Helper()
	var report struct {
		Results []struct{ Status v1.PodStatus }
	}
	// Warnings may stand around it.
	if err := json.NewDecoder(strings.NewReader(out[max(0, strings.Index(out, "{\n")):])).Decode(&report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var all []v1.ContainerStatus
	for _, r := range report.Results {
		all = append(append(all, r.Status.InitContainerStatuses...), r.Status.ContainerStatuses...)
	}
	return all
}

const relinked = `
apiVersion: v1
kind: Pod
metadata: {name: absolute}
spec:
  restartPolicy: OnFailure
  volumes: [{name: work, emptyDir: {}}]
  containers:
  - {name: main, image: "localhost/box:1", args: [do, gone /mine/secret, link /data/mine DIR, exit 3], volumeMounts: [{name: work, mountPath: /data}, {name: work, mountPath: /mine, subPath: mine}]}
---
apiVersion: v1
kind: Pod
metadata: {name: upward}
spec:
  restartPolicy: OnFailure
  volumes: [{name: work, emptyDir: {}}]
  containers:
  - {name: main, image: "localhost/box:1", args: [do, gone /mine/secret, link /data/mine ../../../../../../../../..DIR, exit 3], volumeMounts: [{name: work, mountPath: /data}, {name: work, mountPath: /mine, subPath: mine}]}
---
apiVersion: v1
kind: Pod
metadata: {name: within}
spec:
  restartPolicy: Never
  volumes: [{name: work, emptyDir: {}}]
  initContainers:
  - {name: links, image: "localhost/box:1", args: [do, write /data/real/file inside, link /data/mine real], volumeMounts: [{name: work, mountPath: /data}]}
  containers:
  - {name: main, image: "localhost/box:1", args: [cat, /mine/file], volumeMounts: [{name: work, mountPath: /mine, subPath: mine}]}
`

// TestSubPathAtRestart: a container that puts a link out of the volume in the place of its
// subPath is not started again, by an absolute link or one upwards; a link inside the
// volume is followed.
func TestSubPathAtRestart(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "secret"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		out := m.fails(t, 1, "run", "--until", "completed", "--timeout", "5m", "-o", "json", written(t, relinked, dir))
		var report struct {
			Results []struct{ Name, Outcome, Reason, Message string }
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			if r.Name == "within" {
				if got := m.log(t, "within", "main"); r.Outcome != "Succeeded" || got != "inside" {
					t.Errorf("a link inside the volume: %+v, it said %q", r, got)
				}
				continue
			}
			const want = `failed to prepare subPath for volumeMount "work" of container "main"`
			if r.Outcome != "Failed" || r.Reason != "CreateContainerConfigError" || !strings.Contains(r.Message, want) || strings.Contains(r.Message, dir) {
				t.Errorf("%+v, want %s", r, want)
			}
		}
	})
}
