package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// killed starts a run with the flags, and kills it after it has worked for a time.
func (b *box) killed(t *testing.T, dir string, after time.Duration, flags ...string) {
	t.Helper()
	cmd := b.command(t, "run", b.upArgs(t, dir, flags...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// awaitGone waits until neither a container nor a shim is left.
func (b *box) awaitGone(t *testing.T) {
	t.Helper()
	if !eventually(func() bool { return len(b.processes(t)) == 0 }) {
		t.Fatalf("still running:\n%s\nps:\n%s", strings.Join(b.processes(t), "\n"), b.run(t, "ps").stdout)
	}
}

// TestKilledRunRemovesItsPods: the pods of a run with --rm end with it, whenever it is killed, and a Service goes with them.
// What an earlier run has started stays.
func TestKilledRunRemovesItsPods(t *testing.T) {
	check := func(t *testing.T, b *box) {
		b.up(t, directory(t, pod("earlier", "Always", "sleep")), 0)
		manifests := []string{"apiVersion: v1\nkind: Service\nmetadata: {name: p}\nspec: {selector: {app: p}, ports: [{port: 80}]}\n"}
		for i := range 4 {
			manifests = append(manifests, pod(fmt.Sprintf("p%d", i), "Never", "sleep"))
		}
		dir := directory(t, manifests...)
		for range 8 {
			b.killed(t, dir, time.Duration(20+rand.IntN(700))*time.Millisecond, "--rm", "--until", "completed")
			if !eventually(func() bool { return len(b.containers(t)) == 1 }) {
				t.Fatalf("want only the pod of the earlier run:\n%s\nps:\n%s", strings.Join(b.processes(t), "\n"), b.run(t, "ps").stdout)
			}
		}
		if r := b.run(t, "down", "--orphans"); r.code != 0 { // also what had no container yet
			t.Errorf("down --orphans: exit code %d\n%s", r.code, r.stderr)
		}
		if r := b.run(t, "ps"); !strings.Contains(r.stdout, "earlier") || strings.Contains(r.stdout, "p0") {
			t.Errorf("ps:\n%s%s", r.stdout, r.stderr)
		}
		if left, err := filepath.Glob(filepath.Join(b.dir, "root", "runs", "run-*")); len(left) > 0 || err != nil {
			t.Errorf("files of runs are left: %v, %v", left, err)
		}
	}
	t.Run("embedded", func(t *testing.T) { check(t, newBox(t, "")) })
	daemons(t, check, daemon.Current)
}

// TestKilledRunKeepsWhatItWouldHaveKept: with --rm-on-failure, a pod at its goal stays; with --keep-failed, a failed one does.
func TestKilledRunKeepsWhatItWouldHaveKept(t *testing.T) {
	for flags, want := range map[string]string{"--rm-on-failure": "good", "--rm --keep-failed": "bad"} {
		good := map[string]string{"good": "good=Ready", "bad": "good=Canceled"}[want] // only the first needs to know
		t.Run(flags, func(t *testing.T) {
			b := newBox(t, "")
			dir := directory(t, pod("good", "Always", "sleep"), pod("bad", "Never", "exit", "3"), pod("long", "Never", "sleep", "1h"))
			cmd := b.command(t, "run", b.upArgs(t, dir, append(strings.Fields(flags), "--until", "completed")...)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			decided := func() bool {
				r := b.run(t, "ps", "-o", "json")
				return strings.Contains(r.stdout, `"outcome": "Failed"`) && (strings.Contains(r.stdout, `"outcome": "Ready"`) || want == "bad")
			}
			if !eventually(decided) {
				t.Fatalf("ps:\n%s", b.run(t, "ps", "-o", "json").stdout)
			}
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			names := func() string {
				table, _, _ := strings.Cut(b.run(t, "ps").stdout, "\n\n") // what follows are messages
				var names []string
				for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
					names = append(names, strings.Fields(line)[0])
				}
				return strings.Join(names, " ")
			}
			if !eventually(func() bool { return names() == want }) {
				t.Errorf("left: %s; want %s", names(), want)
			}
			r := b.run(t, "report", "-o", "json", "--exit-code", dir)
			if diff := cmp.Diff([]string{"bad=Failed", good, "long=Canceled"}, r.report.outcomes()); diff != "" || r.code != 1 {
				t.Errorf("report: exit code %d, %s\n%s", r.code, diff, r.stderr)
			}
		})
	}
}

// TestSecondSignalHandsOver: a run with --rm that is interrupted twice exits at once, and its pods end all the same.
func TestSecondSignalHandsOver(t *testing.T) {
	b := newBox(t, "")
	stubborn := strings.Replace(pod("stubborn", "Never", "stay"), "Seconds: 2", "Seconds: 10", 1) // longer than a signal is on its way
	cmd := b.command(t, "run", b.upArgs(t, directory(t, stubborn), "--rm", "--until", "completed")...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return strings.Contains(b.run(t, "logs", "stubborn").stdout, "deaf") }) {
		t.Fatal("the container does not run")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its code says enough
	}()
	for running := true; running; { // on a slow machine, the second one may come too early to be one
		_ = cmd.Process.Signal(syscall.SIGINT) // or it has ended
		select {
		case <-ended:
			running = false
		case <-time.After(300 * time.Millisecond):
		}
	}
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(stderr.String(), "pods are removed in the background: default/stubborn") {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
	b.awaitGone(t)
}
