package containerd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	"golang.org/x/sync/errgroup"

	"github.com/runonce/runonce/runtime/containerd"
)

// helperEnv makes the test's program start a container and wait, as a process of its own.
const helperEnv = "CTRD_TEST_HELPER"

// helper is the other process: it opens an engine, starts box with the given arguments and
// says so, then waits to be killed or for the end of its input.
func helper() int {
	ctx := context.Background()
	p := testDirs{dir: os.Getenv(helperEnv), logs: os.Getenv(helperEnv), address: os.Getenv(helperEnv + "_ADDRESS")}
	e, err := containerd.Open(ctx, p.options())
	if err != nil {
		println(err.Error())
		return 1
	}
	if id := os.Getenv(helperEnv + "_ID"); id != "" {
		t := &failer{}
		if err := e.Start(ctx, p.box(t, id, os.Args[1:]...)); err != nil {
			println(err.Error())
			return 1
		}
	}
	if n, _ := strconv.Atoi(os.Getenv(helperEnv + "_MANY")); n > 0 {
		var g errgroup.Group
		for i := range n {
			c := p.box(&failer{}, fmt.Sprintf("many-%d", i), os.Args[1:]...)
			g.Go(func() error { return e.Start(ctx, c) })
		}
		if err := g.Wait(); err != nil {
			println(err.Error())
			return 1
		}
	}
	fmt.Println("ready")
	// It ends when the test lets go.
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := e.Close(); err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

// failer lets helper use the harness outside of a test.
type failer struct{ testing.TB }

func (*failer) Helper()                  {}
func (*failer) Context() context.Context { return context.Background() }
func (*failer) Fatal(args ...any)        { panic(args) }

// other starts helper. stop ends it in an orderly way, kill does not.
func (p testDirs) other(t *testing.T, id string, args ...string) (stop, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+p.dir, helperEnv+"_ID="+id, helperEnv+"_ADDRESS="+p.address)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := make([]byte, 6)
	if _, err := out.Read(line); err != nil || string(line) != "ready\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	stop = func() {
		t.Helper()
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	kill = func() {
		t.Helper()
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	}
	return stop, kill
}

func TestContainersOutliveTheProcess(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	startUp(t, e, p.box(t, "a", "trap"))
	before, _ := find(t, e, "a")
	closed := time.Now()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = p.open(t, t.Context())
	defer func() { _ = e.Close() }()
	after, _ := find(t, e, "a")
	if after.State != engine.StateRunning || after.StartedAt.IsZero() || after.StartedAt.After(closed) {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if after.LogPath != before.LogPath || after.ImageID == "" || after.PodUID != "pod-a" {
		t.Errorf("after %+v", after)
	}
	if err := e.Stop(t.Context(), "a", syscall.SIGTERM, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, _ := find(t, e, "a"); got.Exit.ExitCode != 0 || got.State != engine.StateExited {
		t.Errorf("stopped: %+v", got)
	}
}

func TestExitWhileNobodyWatches(t *testing.T) {
	for _, end := range []string{"orderly", "killed"} {
		t.Run(end, func(t *testing.T) {
			p := newTestDirs(t)
			if err := p.openWithBox(t).Close(); err != nil {
				t.Fatal(err)
			}
			stop, kill := p.other(t, "a", "do", "sleep 300ms", "exit 5")
			if end == "orderly" {
				stop()
			} else {
				kill()
			}
			awaitEnd(t, "sleep 300ms\x00exit 5")
			for range 2 {
				e := p.open(t, t.Context())
				if got := eventually(t, e, "a", engine.StateExited); got.Exit.ExitCode != 5 || got.Exit.FinishedAt.IsZero() {
					t.Errorf("%+v", got)
				}
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if left := shims(t, p.dir); left != "" {
				t.Errorf("shims are left:\n%s", left)
			}
		})
	}
}

func TestNoShimStaysForAnEndedContainer(t *testing.T) {
	p := newTestDirs(t)
	if err := p.openWithBox(t).Close(); err != nil {
		t.Fatal(err)
	}
	stop, _ := p.other(t, "a", "do", "sleep 300ms", "exit 5")
	stop()
	deadline := time.Now().Add(patience)
	for left := shims(t, p.dir); left != ""; left = shims(t, p.dir) {
		if time.Now().After(deadline) {
			t.Fatalf("a shim stays: %s", left)
		}
	}
	e := p.open(t, t.Context())
	defer func() { _ = e.Close() }()
	if got, _ := find(t, e, "a"); got.State != engine.StateExited || got.Exit.ExitCode != 5 {
		t.Errorf("%+v", got)
	}
	if err := e.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(t, p); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

func TestSecondProcessIsAClientAndTakesOver(t *testing.T) {
	p := newTestDirs(t)
	if err := p.openWithBox(t).Close(); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"orderly", "killed"} {
		t.Run(end, func(t *testing.T) {
			first := "first-" + end
			stop, kill := p.other(t, first, "sleep")
			e := p.open(t, t.Context())
			defer func() { _ = e.Close() }()
			events, err := e.Events(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := find(t, e, first); got.State != engine.StateRunning {
				t.Errorf("the first's container: %+v", got)
			}
			startUp(t, e, p.box(t, "mine-"+end, "trap"))
			if end == "orderly" {
				stop()
			} else {
				kill()
			}
			for _, id := range []string{first, "mine-" + end} {
				if err := e.Stop(t.Context(), id, syscall.SIGTERM, time.Minute); err != nil {
					t.Fatal(err)
				}
				if got, _ := find(t, e, id); got.State != engine.StateExited || got.Exit.ExitCode != 0 {
					t.Errorf("%+v", got)
				}
			}
			if err := e.Start(t.Context(), p.box(t, "later-"+end, "exit", "3")); err != nil {
				t.Fatal(err)
			}
			awaitEvent(t, events, engine.Event{Type: engine.EventExited, ContainerID: "later-" + end, PodUID: "pod-later-" + end})
			if got, _ := find(t, e, "later-"+end); got.Exit.ExitCode != 3 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func awaitEvent(t *testing.T, events <-chan engine.Event, want engine.Event) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case got := <-events:
			if got == want {
				return
			}
		case <-timeout:
			t.Fatalf("no event %+v", want)
		}
	}
}

// shims lists the running shims. Those that end do so a moment after their last
// container.
func shims(t *testing.T, dir string) string {
	t.Helper()
	return shimsOf(t, filepath.Join(dir, "state"))
}

func shimsOf(t *testing.T, address string) string {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var found []string
		procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range procs {
			line, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(line), "-namespace") && strings.Contains(string(line), address) {
				found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(found) == 0 || time.Now().After(deadline) {
			return strings.Join(found, "\n")
		}
		time.Sleep(20 * time.Millisecond)
	}
}
