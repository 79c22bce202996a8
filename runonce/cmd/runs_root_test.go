package cmd_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// process is a run in a process of its own.
type process struct {
	*exec.Cmd
	stdout, stderr lockedBuffer
}

func (m machine) start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), "/proc/self/exe", slices.Concat([]string{"run", "-o", "json", "--capacity", "cpu=4,memory=1100Mi,pods=20"}, args, m.flags)...)}
	p.Env = append(os.Environ(), asProgram+"=1")
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// end waits for the end of the run and returns its exit code and what became of its pods.
func (p *process) end(t *testing.T) (code int, outcomes []string) {
	t.Helper()
	_ = p.Wait()
	var report struct {
		Results []struct{ Name, Outcome, Reason, PreemptedBy string } `json:"results"`
	}
	if err := json.Unmarshal([]byte(p.stdout.String()), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, &p.stdout, &p.stderr)
	}
	for _, r := range report.Results {
		outcomes = append(outcomes, strings.TrimSpace(strings.Join([]string{r.Name, r.Outcome, r.Reason, r.PreemptedBy}, " ")))
	}
	return p.ProcessState.ExitCode(), outcomes
}

// sizedPod is a manifest of a pod on the host network with a memory request in MiB.
func sizedPod(t *testing.T, name string, mib int, spec string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".yaml")
	text := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
%s`, name, strings.ReplaceAll(spec, "MEMORY", fmt.Sprintf("resources: {requests: {memory: %dMi}}", mib)))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const sleeps = "  containers: [{name: main, image: localhost/box:1, args: [sleep], MEMORY}]\n"

// held is a pod that keeps the run that starts it from going on: its hook is answered when
// the test lets it. started is closed once the run waits.
func held(t *testing.T) (manifest string, started <-chan struct{}, letGo func()) {
	t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	var once, last sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(begun) })
		<-end
	}))
	letGo = func() { last.Do(func() { close(end) }) }
	t.Cleanup(func() {
		letGo()
		server.Close()
	})
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return sizedPod(t, "first", 100, `  containers:
  - name: main
    image: localhost/box:1
    args: [sleep]
    MEMORY
    lifecycle: {postStart: {httpGet: {host: 127.0.0.1, port: `+port+`}}}
`), begun, letGo
}

func await(t *testing.T, started <-chan struct{}) {
	t.Helper()
	select {
	case <-started:
	case <-time.After(patience):
		t.Fatal("the run did not come to its hook")
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("no file %s", path)
}

// onEngines runs the test on the embedded engine and on a daemon.
func onEngines(t *testing.T, test func(t *testing.T, m machine)) {
	roottest.Require(t)
	images := boxImages(t)
	t.Run("embedded", func(t *testing.T) { test(t, newMachine(t, images)) })
	t.Run("daemon", func(t *testing.T) {
		test(t, newMachine(t, images, "--address", daemon.Serve(t, daemon.Current).Socket))
	})
}

// TestRoomIsPromisedOnce: a pod that another run has admitted and not yet started has its
// room, until that run ends, however it does.
func TestRoomIsPromisedOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		first, started, letGo := held(t)
		second, third := sizedPod(t, "second", 600, sleeps), sizedPod(t, "third", 600, sleeps)
		a := m.start(t, first, second, "--parallel", "1")
		await(t, started)
		code, got := m.start(t, third).end(t)
		if diff := cmp.Diff([]string{"third Rejected OutOfmemory"}, got); diff != "" || code != 3 {
			t.Errorf("beside the first run: exit code %d (-want +got):\n%s", code, diff)
		}
		if text := m.plan(t, third); !strings.Contains(text, "OutOfmemory") {
			t.Errorf("plan beside the first run:\n%s", text)
		}
		letGo()
		code, got = a.end(t)
		if diff := cmp.Diff([]string{"first Running", "second Running"}, got); diff != "" || code != 0 {
			t.Errorf("the first run: exit code %d (-want +got):\n%s\n%s", code, diff, &a.stderr)
		}
	})
}

// plan returns the plan for the manifest.
func (m machine) plan(t *testing.T, manifest string) string {
	t.Helper()
	// --capacity and --node would make it a plan without an engine.
	node := filepath.Join(t.TempDir(), "node.yaml")
	text := "{apiVersion: v1, kind: Node, metadata: {name: here}, status: {allocatable: {cpu: 4, memory: 1000Mi, pods: 20}}}\n"
	if err := os.WriteFile(node, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := slices.Concat([]string{"plan", manifest, node, "-o", "json"}, m.flags)
	p := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	p.Env = append(os.Environ(), asProgram+"=1")
	out, _ := p.CombinedOutput()
	return string(out)
}

func TestKilledRunPromisesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		first, started, _ := held(t)
		a := m.start(t, first, sizedPod(t, "second", 600, sleeps), "--parallel", "1")
		await(t, started)
		if err := a.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = a.Wait()
		code, got := m.start(t, sizedPod(t, "third", 600, sleeps)).end(t)
		if diff := cmp.Diff([]string{"third Running"}, got); diff != "" || code != 0 {
			t.Errorf("after the first run was killed: exit code %d (-want +got):\n%s", code, diff)
		}
	})
}

// TestKilledInHook: a run that is killed while a command of its runs in a container leaves
// one that can be stopped at once.
func TestKilledInHook(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		hold := t.TempDir()
		a := m.start(t, sizedPod(t, "first", 100, `  containers:
  - name: main
    image: localhost/box:1
    args: [do, "write /hold/started yes", sleep]
    lifecycle: {postStart: {exec: {command: [/bin/box, await, /hold/go]}}}
    volumeMounts: [{name: hold, mountPath: /hold}]
  volumes: [{name: hold, hostPath: {path: `+hold+`}}]
`))
		awaitFile(t, filepath.Join(hold, "started"))
		if err := a.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = a.Wait()
		m.once(t, "down", "--all")
	})
}

// TestTwoRunsAtOnce: of two pods that do not fit beside each other, one is admitted.
func TestTwoRunsAtOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		var running []*process
		for _, name := range []string{"a", "b"} {
			running = append(running, m.start(t, sizedPod(t, name, 600, sleeps)))
		}
		var all []string
		for _, p := range running {
			code, got := p.end(t)
			all = append(all, fmt.Sprint(code, got[0][1:]))
		}
		slices.Sort(all)
		if diff := cmp.Diff([]string{"0 Running", "3 Rejected OutOfmemory"}, all); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestPreemptsFromLiveRun: a run whose pod another one preempts says so, and does not
// start it again.
func TestPreemptsFromLiveRun(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		for _, policy := range []string{"Never", "Always"} {
			hold := t.TempDir()
			long := sizedPod(t, "long", 600, "  restartPolicy: "+policy+`
  containers:
  - name: main
    image: localhost/box:1
    args: [do, "write /hold/started yes", sleep]
    MEMORY
    volumeMounts: [{name: hold, mountPath: /hold}]
    readinessProbe: {exec: {command: [/bin/box, cat, /hold/never]}}
  volumes: [{name: hold, hostPath: {path: `+hold+`}}]
`)
			a := m.start(t, long, "--until", "completed")
			awaitFile(t, filepath.Join(hold, "started"))
			code, got := m.start(t, sizedPod(t, "boss", 600, "  priorityClassName: system-node-critical\n"+sleeps)).end(t)
			want := []string{"boss Running", "long Preempted Preempting default/boss"}
			if diff := cmp.Diff(want, got); diff != "" || code != 3 {
				t.Errorf("%s: the critical pod's run: exit code %d (-want +got):\n%s", policy, code, diff)
			}
			code, got = a.end(t)
			if diff := cmp.Diff(want[1:], got); diff != "" || code != 3 {
				t.Errorf("%s: the victim's run: exit code %d (-want +got):\n%s\n%s", policy, code, diff, &a.stderr)
			}
			if ps := m.once(t, "ps"); strings.Contains(ps, "long") || !strings.Contains(ps, "boss") {
				t.Errorf("%s: then run:\n%s", policy, ps)
			}
			m.once(t, "down", "--all")
		}
	})
}

// TestKilled: killed at any instant and run again, a run converges, and nothing is left
// after down.
func TestKilled(t *testing.T) {
	roottest.Require(t)
	images := boxImages(t)
	manifests := filepath.Join(storyDir(t, "happy"), "manifests")
	for _, after := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond, 120 * time.Millisecond, 200 * time.Millisecond, 350 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			m := newMachine(t, images)
			args := append([]string{"run", manifests}, m.flags...)
			program := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
			program.Env = append(os.Environ(), asProgram+"=1")
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			if err := program.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			if err := program.Wait(); err == nil {
				t.Log("the run was over before it was killed")
			}
			out := m.once(t, "run", "--until", "completed", "-o", "json", manifests)
			var report struct {
				Results []struct{ Name, Outcome string } `json:"results"`
			}
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{"Succeeded", "Ready", "Ready"} {
				if report.Results[i].Outcome != want {
					t.Errorf("%s: %s, want %s\n%s", report.Results[i].Name, report.Results[i].Outcome, want, out)
				}
			}
		})
	}
}

// TestSideBySide: a second run beside a first becomes its client, and both end well.
func TestSideBySide(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	happy, twice := filepath.Join(storyDir(t, "happy"), "manifests"), filepath.Join(storyDir(t, "too-big"), "manifests", "web.yaml")
	programs := make([]*exec.Cmd, 0, 4)
	for _, manifests := range []string{happy, twice, happy, twice} {
		p := exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{"run", manifests}, m.flags...)...)
		p.Env = append(os.Environ(), asProgram+"=1")
		p.Stdout, p.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	for _, p := range programs {
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %v\n%s%s", p.Args, err, p.Stdout, p.Stderr)
		}
	}
}

// TestSignals: the real program ends by a signal with the right code, and removes what
// it was asked to remove.
func TestSignals(t *testing.T) {
	roottest.Require(t)
	catchHangups(t)
	m := newMachine(t, boxImages(t))
	for sig, want := range map[syscall.Signal]int{syscall.SIGHUP: 129, syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		args := append([]string{"run", "--rm", "--until", "completed", "--log-level", "info", filepath.Join(storyDir(t, "timeout"), "manifests")}, m.flags...)
		p := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
		p.Env = append(os.Environ(), asProgram+"=1")
		var out bytes.Buffer
		p.Stdout = &out
		stderr, err := p.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stderr)
		for sent := false; lines.Scan(); {
			if !sent && strings.Contains(lines.Text(), "still running") {
				sent = true
				if err := p.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
		}
		var exit *exec.ExitError
		if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != want || !strings.Contains(out.String(), "Canceled") {
			t.Errorf("%v: %v, want exit code %d\n%s", sig, err, want, &out)
		}
		if left := m.once(t, "ps"); strings.Count(left, "\n") > 1 {
			t.Errorf("%v: pods left:\n%s", sig, left)
		}
	}
}
