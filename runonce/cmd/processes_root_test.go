package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/report"
)

// TestProbesEndWithTheRun: no command of a probe is left in its container when the run has ended.
func TestProbesEndWithTheRun(t *testing.T) {
	everywhere(t, func(t *testing.T, m machine) {
		mark := fmt.Sprintf("4h%dns", os.Getpid())
		m.once(t, "run", "--settle", "0s", podDir(t, `{apiVersion: v1, kind: Pod, metadata: {name: probed}, spec: {hostNetwork: true, terminationGracePeriodSeconds: 1,
  containers: [{name: main, image: localhost/box:1, args: [sleep], lifecycle: {postStart: {exec: {command: [/bin/box, sleep, 1s]}}},
    livenessProbe: {exec: {command: [/bin/box, stay, `+mark+`]}, timeoutSeconds: 3600}}]}}`))
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "\x00"+mark+"\x00") {
				t.Errorf("%s: %q", path, text)
			}
		}
	})
}

const sharedProcesses = `apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 60
  securityContext: {runAsUser: 1000, runAsNonRoot: true}
  containers:
  - name: beside
    image: localhost/box:1
    args: [sleep]
    lifecycle: {postStart: {exec: {command: [box, orphan]}}}
  - name: main
    image: localhost/box:1
    args: [facts, -hold]
    lifecycle: {preStop: {exec: {command: [box, write, /out/stopped, gracefully]}}}
    volumeMounts: [{name: out, mountPath: /out}]
  volumes: [{name: out, hostPath: {path: OUT}}]
`

// TestSharedProcesses: the containers see each other's processes below one that outlives
// us, and the pod is made again when that one dies.
func TestSharedProcesses(t *testing.T) {
	everywhere(t, func(t *testing.T, m machine) {
		out := t.TempDir()
		if err := os.Chmod(out, 0o777); err != nil {
			t.Fatal(err)
		}
		dir := podDir(t, strings.ReplaceAll(sharedProcesses, "OUT", out))
		m.once(t, "run", "--max-retries", "1", dir)
		v := m.facts(t, "shared", "main")
		if v.PID == 1 || !slices.Contains(v.Processes, "/pause pause") || strings.Count(strings.Join(v.Processes, " "), "/bin/box") < 2 {
			t.Errorf("process %d among %q, want it to see /pause and the other container", v.PID, v.Processes)
		}
		pause := pauseProcess(t, v.Namespaces["pid"])
		awaitReaped(t, pause)
		if err := syscall.Kill(pause, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitGone(t, pause)
		m.awaitRecords(t)
		m.once(t, "run", "--max-retries", "1", dir)
		again := m.status(t, "shared")
		for _, c := range again.ContainerStatuses {
			if c.RestartCount != 1 || c.State.Running == nil || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 137 {
				t.Errorf("container %s after its pause process was killed: %+v", c.Name, c)
			}
		}
		later := m.facts(t, "shared", "main")
		fresh := pauseProcess(t, later.Namespaces["pid"])
		if fresh == pause {
			t.Errorf("the process namespace is the old one: process %d", fresh)
		}

		m.once(t, "down", dir)
		awaitGone(t, fresh)
		if text, err := os.ReadFile(filepath.Join(out, "stopped")); err != nil || string(text) != "gracefully\n" {
			t.Errorf("preStop: %q, %v", text, err)
		}
	})
}

// TestSharedProcessesNever: a pod that is not to be restarted ends with its pause process.
func TestSharedProcessesNever(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	dir := podDir(t, strings.Replace(strings.ReplaceAll(sharedProcesses, "OUT", t.TempDir()), "spec:", "spec:\n  restartPolicy: Never", 1))
	m.once(t, "run", "--max-retries", "1", dir)
	pause := pauseProcess(t, m.facts(t, "shared", "main").Namespaces["pid"])
	if err := syscall.Kill(pause, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, pause)
	m.awaitRecords(t)
	if st := m.status(t, "shared"); st.Phase != v1.PodFailed {
		t.Errorf("phase %s", st.Phase)
	}
	m.once(t, "run", "--max-retries", "1", dir) // runs it again
	if st := m.status(t, "shared"); st.Phase != v1.PodRunning {
		t.Errorf("phase %s in the next run", st.Phase)
	}
}

// TestKilledJustBefore: a process that ends while the next run connects to its shim leaves
// nothing behind. What that run sees of the pod is a matter of moments.
func TestKilledJustBefore(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	dir := podDir(t, strings.Replace(strings.ReplaceAll(sharedProcesses, "OUT", t.TempDir()), "spec:", "spec:\n  restartPolicy: Never", 1))
	m.once(t, "run", dir)
	pause := pauseProcess(t, m.facts(t, "shared", "main").Namespaces["pid"])
	if err := syscall.Kill(pause, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.try(t, "run", "--max-retries", "0", dir)
	m.once(t, "down", dir)
}

// pauseProcess returns the host's ID of the first process of a process namespace.
func pauseProcess(t *testing.T, namespace string) int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		dir := filepath.Dir(filepath.Dir(link))
		if ns, err := os.Readlink(link); err != nil || ns != namespace {
			continue
		}
		if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && strings.HasPrefix(string(line), "/pause\x00") {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no pause process in %s", namespace)
	return 0
}

// awaitGone waits until a process is gone or a zombie.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil || strings.Contains(string(text), "State:\tZ") {
			return
		}
	}
	t.Fatalf("process %d does not go", pid)
}

// awaitRecords waits until the shims have recorded that every container has ended. Those of
// an old daemon record nothing: whoever looks does it.
func (m machine) awaitRecords(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if strings.HasSuffix(t.Name(), "1.6") {
			m.once(t, "ps")
		}
		records, err := filepath.Glob(filepath.Join(m.dir, "root", "containers", "*.json"))
		if err != nil || len(records) == 0 {
			t.Fatalf("no records: %v", err)
		}
		if !slices.ContainsFunc(records, func(path string) bool {
			text, err := os.ReadFile(path)
			return err != nil || !strings.Contains(string(text), "finishedAt")
		}) {
			return
		}
	}
	t.Fatal("the ends of the containers are not recorded")
}

// awaitReaped waits until the process has no children: those of a pause process are
// orphans, and it is to wait for them.
func awaitReaped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(children) == 0 {
			return
		}
	}
	t.Fatalf("process %d does not wait for its children", pid)
}

// status returns the status of a pod that runs.
func (m machine) status(t *testing.T, pod string) v1.PodStatus {
	t.Helper()
	var document report.Pods
	if err := json.Unmarshal([]byte(m.once(t, "ps", "-o", "json")), &document); err != nil {
		t.Fatal(err)
	}
	for _, p := range document.Pods {
		if p.Name == pod {
			return p.Status
		}
	}
	t.Fatalf("no pod %q", pod)
	return v1.PodStatus{}
}

// try runs a command, whatever its exit code, and returns all that it writes.
func (m machine) try(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	world := m.world
	world.Stdout, world.Stderr, world.Stdin = &out, &out, strings.NewReader("")
	return cmd.Main(testContext(), slices.Concat([]string{"runonce"}, args, m.flags), world), out.String()
}
