package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ids returns the container IDs and start times in a report, by pod.
func (r report) ids() map[string]string {
	ids := map[string]string{}
	for _, p := range r.Results {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil {
				ids[p.Name] += c.ContainerID + " " + c.State.Running.StartedAt
			}
		}
	}
	return ids
}

func TestRunTwiceAndChange(t *testing.T) {
	b := newBox(t, "")
	a, old, gone := pod("a", "Always", "sleep"), pod("b", "Always", "sleep"), pod("job", "Never", "exit", "0")
	first := b.up(t, directory(t, a, old, gone), 0, "--until", "completed")
	again := b.up(t, directory(t, a, old, gone), 0, "--until", "completed")
	if diff := cmp.Diff(first.report.ids(), again.report.ids()); diff != "" {
		t.Errorf("running the same pods again changed containers (-first +again):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a=Ready", "b=Ready", "job=Succeeded"}, again.report.outcomes()); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	changed := b.up(t, directory(t, a, pod("b", "Always", "stay"), gone), 0, "--until", "completed")
	before, after := first.report.ids(), changed.report.ids()
	if before["a"] != after["a"] || before["b"] == after["b"] {
		t.Errorf("a: %s -> %s, want it kept\nb: %s -> %s, want it replaced", before["a"], after["a"], before["b"], after["b"])
	}
	b.awaitPods(t, 2)
}

func TestKilledHalfWayThenRunAgain(t *testing.T) {
	const pods = 12
	manifests := make([]string, 0, pods)
	for i := range pods {
		manifests = append(manifests, pod(fmt.Sprintf("p%02d", i), "Always", "sleep"))
	}
	b := newBox(t, "")
	dir := directory(t, manifests...)
	for round := range 5 {
		cmd := b.command(t, "run", b.upArgs(t, dir)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// At any time from the very start to the last container.
		time.Sleep(time.Duration(20+rand.IntN(500)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		got := b.up(t, dir, 0)
		if n := len(got.report.ids()); n != pods {
			t.Errorf("round %d: %d pods run, want %d", round, n, pods)
		}
		b.awaitPods(t, pods)
		if round < 4 {
			if r := b.run(t, "down", dir); r.code != 0 {
				t.Fatalf("down: exit code %d\n%s", r.code, r.stderr)
			}
			b.unchanged(t)
		}
	}
}

func TestInterrupted(t *testing.T) {
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(sig.String(), func(t *testing.T) {
			b := newBox(t, "")
			dir := directory(t, pod("quick", "Never", "exit", "0"), pod("slow", "Never", "sleep"))
			cmd := b.command(t, "run", b.upArgs(t, dir, "--until", "completed", "--log-level", "info")...)
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			log := signalOnce(t, cmd.Process, sig, stderr, "msg=Succeeded pod=default/quick", "still running")
			_ = cmd.Wait()
			r := finished(t, cmd, stdout.String(), log)
			if r.code != want || r.report.ExitCode != want {
				t.Errorf("exit code %d, in the report %d; want %d\n%s", r.code, r.report.ExitCode, want, r.stderr)
			}
			if diff := cmp.Diff([]string{"quick=Succeeded", "slow=Canceled"}, r.report.outcomes()); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

// signalOnce sends the signal once all words have appeared in the log, and returns the log.
func signalOnce(t *testing.T, p *os.Process, sig os.Signal, log io.Reader, words ...string) string {
	t.Helper()
	var text strings.Builder
	for lines := bufio.NewScanner(log); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		before := len(words)
		words = slices.DeleteFunc(words, func(w string) bool { return strings.Contains(lines.Text(), w) })
		if before > 0 && len(words) == 0 {
			if err := p.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	return text.String()
}

// awaitProcess waits for a process with the command line.
func (b *box) awaitProcess(t testing.TB, command string) {
	t.Helper()
	runs := func(p string) bool { return strings.HasSuffix(p, " "+command) }
	if !eventually(func() bool { return slices.ContainsFunc(b.processes(t), runs) }) {
		t.Fatalf("no process %q", command)
	}
}

// awaitPods waits until there are a shim and a container for each pod, and no other process: a
// container that has just started may not run its program yet.
func (b *box) awaitPods(t testing.TB, pods int) {
	t.Helper()
	if !eventually(func() bool { return len(b.processes(t)) == 2*pods }) {
		t.Fatalf("want a shim and a container for each of %d pods:\n%s", pods, strings.Join(b.processes(t), "\n"))
	}
}

// awaitEnd waits until all processes of the box's containers have exited.
func (b *box) awaitEnd(t *testing.T) {
	t.Helper()
	if !eventually(func() bool { return len(b.containers(t)) == 0 }) {
		t.Fatalf("still running: %v", b.containers(t))
	}
}

func TestConcurrentRuns(t *testing.T) {
	b := newBox(t, "")
	first := b.command(t, "run", b.upArgs(t, directory(t, pod("long", "Never", "sleep", "4s")), "--until", "completed")...)
	var stdout, stderr bytes.Buffer
	first.Stdout, first.Stderr = &stdout, &stderr
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	b.awaitProcess(t, "/bin/box sleep 4s")
	b.up(t, directory(t, pod("other", "Always", "sleep")), 0)
	if r := b.run(t, "ps", "-o", "json"); r.code != 0 || !strings.Contains(r.stdout, `"long"`) || !strings.Contains(r.stdout, `"other"`) {
		t.Errorf("ps during a run: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	// This one uses the engine of the first run, and has to continue on its own when that exits.
	second := b.up(t, directory(t, pod("outlives", "Never", "sleep", "6s")), 0, "--until", "completed")
	if diff := cmp.Diff([]string{"outlives=Succeeded"}, second.report.outcomes()); diff != "" {
		t.Errorf("outcomes of the second (-want +got):\n%s", diff)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("the first: %v\n%s", err, stderr.String())
	}
	if got := finished(t, first, stdout.String(), stderr.String()).report.outcomes(); !slices.Equal(got, []string{"long=Succeeded"}) {
		t.Errorf("outcomes of the first: %v", got)
	}
}

func TestEndsWhileNobodyWatches(t *testing.T) {
	b := newBox(t, "")
	b.endUnseen(t)
	b.awaitExit(t, 0, 7)
	b.awaitExit(t, 0, 7)
}

// endUnseen starts a pod whose container exits with 7 after the run.
func (b *box) endUnseen(t *testing.T) {
	t.Helper()
	mark := filepath.Join(t.TempDir(), "go")
	later := withHost(pod("later", "Never", "do", "await /host/go", "exit 7 over"), filepath.Dir(mark))
	b.up(t, directory(t, later), 0)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.awaitLog(t, "later", "main", "stdout F over")
	b.awaitEnd(t)
}

func TestEngineCannotBeUsed(t *testing.T) {
	b := newBox(t, "")
	dead := filepath.Join(b.dir, "dead.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(b.dir, "foreign.sock")
	if l, err = (&net.ListenConfig{}).Listen(t.Context(), "unix", foreign); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 not containerd\r\n"))
		}
	}()
	file := filepath.Join(b.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := directory(t, pod("a", "Always", "sleep"))
	for _, address := range []string{filepath.Join(b.dir, "none.sock"), dead, foreign, file} {
		r := b.run(t, "run", "--address", address, dir)
		if r.code != 4 || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, address) {
			t.Errorf("%s: exit code %d, want 4 and one line that names it\n%s%s", address, r.code, r.stdout, r.stderr)
		}
	}
}
