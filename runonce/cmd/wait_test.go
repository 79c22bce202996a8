package cmd_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runonce/cmd"
)

// background runs a command on the machine in memory until it ends, or is interrupted.
func background(t *testing.T, m *memory, args ...string) (interrupt func(), ended <-chan invocation) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan invocation, 1)
	go func() {
		var out, errs lockedBuffer
		all := append([]string{"runonce"}, args...)
		all = append(all, "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log"))
		code := cmd.Main(ctx, all, cmd.IO{Open: m.open, Machine: bareMachine(), Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
		done <- invocation{code, out.String(), errs.String()}
	}()
	return func() { cancel(cmd.Interrupt{Signal: syscall.SIGTERM}) }, done
}

// text writes a manifest and returns its path.
func text(t *testing.T, manifest string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWaitForOtherRun: a pod that another process manages is waited for until that has decided.
func TestWaitForOtherRun(t *testing.T) {
	t.Parallel()
	const low = `{apiVersion: v1, kind: Pod, metadata: {name: low}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1,
  containers: [{name: main, image: "localhost/box:1", args: [stay], resources: {requests: {cpu: 1500m}}}]}}`
	const high = `{apiVersion: v1, kind: Pod, metadata: {name: high, namespace: kube-system}, spec: {priorityClassName: system-node-critical,
  containers: [{name: main, image: "localhost/box:1", args: [sleep], resources: {requests: {cpu: 1}}}]}}`
	const inTurn = `{apiVersion: v1, kind: Pod, metadata: {name: first}, spec: {restartPolicy: Never, containers: [{name: main, image: "localhost/box:1", args: [sleep, 30s]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: late, annotations: {runonce/depends-on: "first:completed"}}, spec: {restartPolicy: Never, containers: [{name: main, image: "localhost/box:1", args: [sleep, 30s]}]}}`
	for _, c := range []struct {
		name     string
		manifest func(t *testing.T) string
		run      []string
		then     func(t *testing.T, m *memory, interrupt func()) // after five seconds
		wait     []string
		code     int
		took     time.Duration // from then on
		want     string        // in its output
	}{
		{
			name: "completes", manifest: func(t *testing.T) string { return manifest(t, "job", "Never", `[sleep, 65s]`) },
			wait: []string{"job", "--for", "completed"}, took: time.Minute, want: "pod/job condition met\n",
		},
		{
			name: "is restarted until the run gives up", manifest: func(t *testing.T) string { return manifest(t, "job", "OnFailure", `[do, sleep 2s, exit 7]`) },
			run: []string{"--max-restarts", "2"}, wait: []string{"job", "--for", "completed"}, code: 1, took: 11 * time.Second,
			want: "pod/job: Failed: CrashLoopBackOff: container \"main\" exited with code 7; gave up after 2 restarts\n",
		},
		{
			name: "starts later", manifest: func(t *testing.T) string { return text(t, inTurn) },
			wait: []string{"late", "--for", "running", "--settle", "0"}, took: 25 * time.Second, want: "pod/late condition met\n",
		},
		{
			name: "never starts", manifest: func(t *testing.T) string { return text(t, inTurn) },
			then: func(_ *testing.T, _ *memory, interrupt func()) { interrupt() },
			wait: []string{"late", "--for", "running"}, code: 1, want: "pod/late: Failed: NotFound: the pod does not exist any more\n",
		},
		{
			// It takes a while to stop, so that it is seen to.
			name: "is stopped", manifest: func(t *testing.T) string { return manifest(t, "job", "Never", `[stay]`) },
			then: func(t *testing.T, m *memory, _ func()) { invoke(t, m, "down", "job") },
			wait: []string{"job", "--for", "completed"}, code: 1, want: "pod/job: Failed: Stopped: the pod was told to stop and has not been removed yet\n",
		},
		{
			name: "is deleted", manifest: func(t *testing.T) string { return manifest(t, "job", "Never", `[sleep, 1h]`) },
			then: func(t *testing.T, m *memory, _ func()) { invoke(t, m, "down", "job") },
			wait: []string{"job", "--for", "deleted"}, want: "pod/job condition met\n",
		},
		{
			name: "is preempted", manifest: func(t *testing.T) string { return text(t, low) },
			then: func(t *testing.T, m *memory, _ func()) { invoke(t, m, "run", text(t, high), "--node", nodeFile()) },
			wait: []string{"low", "--for", "completed"}, code: 3, want: "pod/low: Preempted: Preempting: Preempted in order to admit critical pod\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t)
				interrupt, ran := background(t, m, append([]string{"run", "--until", "completed", "--node", nodeFile(), c.manifest(t)}, c.run...)...)
				time.Sleep(4 * time.Second)
				_, waited := background(t, m, append([]string{"wait"}, c.wait...)...)
				time.Sleep(time.Second)
				begin := time.Now()
				var then sync.WaitGroup
				if c.then != nil {
					then.Go(func() { c.then(t, m, interrupt) })
				}
				got := <-waited
				if took := time.Since(begin).Truncate(time.Second); got.code != c.code || !strings.Contains(got.stdout+got.stderr, c.want) || took != c.took {
					t.Errorf("after %s %+v, want %d after %s and %s", took, got, c.code, c.took, c.want)
				}
				then.Wait()
				interrupt()
				<-ran
			})
		})
	}
}

// TestWaitSaysWhatFor: a wait that takes long says so, unless it is to be quiet.
func TestWaitSaysWhatFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		for _, name := range []string{"a", "b"} {
			invoke(t, m, "run", manifest(t, name, "Never", `[sleep, 30s]`), "--node", nodeFile())
		}
		got := invoke(t, m, "wait", "a", "b", "--for", "completed", "--timeout", "15s")
		want := "waiting for 2 of 2 pods: default/a: still running: \"main\"; default/b: still running: \"main\"\n" +
			"runonce: pod/a: TimedOut: PodNotCompleted: still running: \"main\"\nrunonce: pod/b: TimedOut: PodNotCompleted: still running: \"main\"\n"
		if got.code != 1 || got.stdout != "" || got.stderr != want {
			t.Errorf("%+v, want %s", got, want)
		}
		if got := invoke(t, m, "wait", "a", "b", "--for", "completed", "-q"); got.code != 0 || got.stderr != "" {
			t.Errorf("quiet: %+v", got)
		}
	})
}
