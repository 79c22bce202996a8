package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// starts notes the starts of containers on a machine in memory.
type starts struct {
	mu  sync.Mutex
	all []string // "pod arguments"
}

// noteStarts notes every start on the machine from now on. If change is not nil, it changes what the
// process of the pod does.
func (m *memory) noteStarts(change func(pod string, life *enginetest.Behavior)) *starts {
	s := &starts{}
	program := m.engine.Program
	m.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
		pod := c.Labels[engine.LabelPodName]
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, pod+" "+strings.Join(c.Spec.Process.Args[1:], " "))
		life := program(c)
		if change != nil {
			change(pod, &life)
		}
		return life
	}
	return s
}

func (s *starts) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// writePod replaces the file of a pod at once, as editors do.
func writePod(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

// running returns "pod arguments" for the containers that run, in order.
func (m *memory) running(t *testing.T) (all []string) {
	t.Helper()
	cs, err := m.engine.Containers(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		if c.State == engine.StateRunning {
			all = append(all, c.Labels[engine.LabelPodName]+" "+string(c.PodUID))
		}
	}
	slices.Sort(all)
	return all
}

// names are the names of the pods that run.
func (m *memory) names(t *testing.T) (names []string) {
	t.Helper()
	for _, c := range m.running(t) {
		name, _, _ := strings.Cut(c, " ")
		names = append(names, name)
	}
	return names
}

// isLocked says whether somebody has locked the file.
func isLocked(t *testing.T, path string) bool {
	t.Helper()
	f, err := flock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		return true
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return false
}

// TestWatchSupersedes: a pod that is admitted and waits for its turn to start does not stay once its
// manifest has changed.
func TestWatchSupersedes(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	hook, release := make(chan struct{}), make(chan struct{})
	began := m.noteStarts(func(_ string, life *enginetest.Behavior) {
		life.Exec = func([]string) engine.ExecResult {
			close(hook)
			<-release
			return engine.ExecResult{}
		}
	})
	dir := t.TempDir()
	first := strings.ReplaceAll(boxPod("first", "Always", "[sleep], lifecycle: {postStart: {exec: {command: [/bin/box]}}}"), "spec:\n", "spec:\n  priority: 1\n")
	writePod(t, dir, "first", first)
	writePod(t, dir, "web", boxPod("web", "Always", "[sleep, 1h]"))
	w := watchPaths(t, m, "--parallel", "1", dir)
	<-hook // "first" starts, and "web" waits until it has
	writePod(t, dir, "web", boxPod("web", "Always", "[sleep, 2h]"))
	w.signals <- syscall.SIGHUP
	w.await(t, "the turn to plan", func() bool { return isLocked(t, filepath.Join(m.root, "runs", "plan.lock")) })
	close(release)
	w.await(t, "the new version", func() bool { return slices.Contains(began.list(), "web sleep 2h") })
	w.await(t, "the goal", func() bool { return w.status() == "2 of 2 pods running" })
	w.end(t, syscall.SIGTERM, 0)
	if got := began.list(); got[len(got)-1] != "web sleep 2h" {
		t.Errorf("started: %v", got)
	}
	if got := m.names(t); !slices.Equal(got, []string{"first", "web"}) {
		t.Errorf("running: %v", got)
	}
}

// TestWatchStorm: however signals and changes come, there is never more than one version of a pod, and
// the last one stays.
func TestWatchStorm(t *testing.T) {
	t.Parallel()
	const changes = 40
	m := newMemory(t)
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		writePod(t, dir, name, boxPod(name, "Always", "[sleep]"))
	}
	w := watchPaths(t, m, "--parallel", "1", dir)
	w.awaitPods(t, "a 0", "b 0", "c 0")
	for k := range changes {
		writePod(t, dir, "b", boxPod("b", "Always", fmt.Sprintf("[sleep, %dh]", k+1)))
		w.signals <- syscall.SIGHUP
		if names := m.names(t); len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Fatalf("running: %v", names)
		}
	}
	began := m.noteStarts(nil)
	writePod(t, dir, "b", boxPod("b", "Always", "[sleep, 99h]"))
	w.signals <- syscall.SIGHUP
	w.await(t, "the last version", func() bool { return slices.Contains(began.list(), "b sleep 99h") })
	w.await(t, "the goal", func() bool { return w.status() == "3 of 3 pods running" })
	w.end(t, syscall.SIGTERM, 0)
	if got := m.names(t); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("running: %v", got)
	}
	if got := invoke(t, m, "down", "--all"); got.code != 0 || strings.Count(got.stdout, "removed") != 3 {
		t.Errorf("%+v", got)
	}
}

// TestWatchInterrupted: SIGTERM ends the command also while it stops pods that take their time, or
// waits for another process to do so.
func TestWatchInterrupted(t *testing.T) {
	t.Parallel()
	slow := func(args string) string {
		return strings.ReplaceAll(boxPod("slow", "Always", args), "PeriodSeconds: 1", "PeriodSeconds: 86400")
	}
	m := newMemory(t)
	m.noteStarts(func(_ string, life *enginetest.Behavior) { life.IgnoresTerm = true })
	dir := t.TempDir()
	writePod(t, dir, "slow", slow("[sleep]"))
	w := watchPaths(t, m, dir)
	w.awaitPods(t, "slow 0")
	second := watchPaths(t, m, dir)
	second.await(t, "the goal", func() bool { return second.status() == "1 of 1 pod running" })
	writePod(t, dir, "slow", slow("[sleep, 1h]"))
	w.signals <- syscall.SIGHUP
	w.await(t, "the stop", func() bool { return strings.Contains(w.stderr.String(), "default/slow: Stopping") })
	second.signals <- syscall.SIGHUP
	w.signals <- syscall.SIGHUP
	second.await(t, "the second reading", func() bool { return strings.Contains(second.notified.String(), "waiting for another run") })
	second.end(t, syscall.SIGTERM, 0)
	w.end(t, syscall.SIGTERM, 143)
}

// TestWatchAndDown: a pod that down has stopped stays stopped until the manifests are read again, and is
// no failure.
func TestWatchAndDown(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Always", "Never"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			m := newMemory(t)
			dir := t.TempDir()
			writePod(t, dir, "a", boxPod("a", policy, "[sleep]"))
			writePod(t, dir, "b", boxPod("b", policy, "[sleep]"))
			w := watchPaths(t, m, dir)
			w.await(t, "the goal", func() bool { return w.status() == "2 of 2 pods running" })
			if got := invoke(t, m, "down", "b"); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			w.await(t, "the removal", func() bool { return w.status() == "1 of 2 pods running; default/b: Removed (Stopped)" })
			if text := w.stderr.String(); strings.Contains(text, "Failed") || !strings.Contains(text, `default/b: Removed: pod "b" was stopped by process `) {
				t.Errorf("it says\n%s", text)
			}
			w.signals <- syscall.SIGHUP
			w.await(t, "the goal", func() bool { return w.status() == "2 of 2 pods running" })
			if got := invoke(t, m, "down", dir); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			w.await(t, "the removal", func() bool { return strings.HasPrefix(w.status(), "0 of 2 pods running; default/") })
			w.await(t, "both", func() bool { return strings.Count(w.status(), "Removed") == 2 })
			w.end(t, syscall.SIGTERM, 0)
			if got := m.names(t); got != nil {
				t.Errorf("running: %v", got)
			}
		})
	}
}

// TestTwoWatches: of two that want different versions of a pod, the last plan decides. The other one says
// who has taken its pod and does not take it back, until it reads its manifests again.
func TestTwoWatches(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	began := m.noteStarts(nil)
	one, other := t.TempDir(), t.TempDir()
	for k, dir := range []string{one, other} {
		writePod(t, dir, "web", boxPod("web", "Always", fmt.Sprintf("[sleep, %dh]", k+1)))
		name := fmt.Sprintf("own%d", k+1)
		writePod(t, dir, name, boxPod(name, "Always", "[sleep]"))
	}
	first := watchPaths(t, m, one)
	first.await(t, "the goal", func() bool { return first.status() == "2 of 2 pods running" })
	second := watchPaths(t, m, other)
	second.await(t, "the goal", func() bool { return second.status() == "2 of 2 pods running" })
	first.await(t, "the loss", func() bool { return first.status() == "1 of 2 pods running; default/web: Removed (Stopped)" })
	if text := first.stderr.String(); !strings.Contains(text, `default/web: Removed: pod "web" was stopped by process `) {
		t.Errorf("it says\n%s", text)
	}
	first.signals <- syscall.SIGHUP
	second.await(t, "the loss", func() bool { return second.status() == "1 of 2 pods running; default/web: Removed (Stopped)" })
	first.await(t, "the goal", func() bool { return first.status() == "2 of 2 pods running" })
	if got := m.names(t); !slices.Equal(got, []string{"own1", "own2", "web"}) {
		t.Errorf("running: %v", got)
	}
	want := []string{"own1 sleep", "own2 sleep", "web sleep 1h", "web sleep 1h", "web sleep 2h"}
	if got := began.list(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("started: %v", got)
	}
	second.end(t, syscall.SIGTERM, 0)
	first.end(t, syscall.SIGTERM, 0)
}

// TestTwoWatchesStorm: two that get storms of signals, for the same manifests or for others with a pod of
// the same name, come to an end: one version runs.
func TestTwoWatchesStorm(t *testing.T) {
	t.Parallel()
	for _, same := range []bool{true, false} {
		t.Run(fmt.Sprintf("same directory %t", same), func(t *testing.T) {
			t.Parallel()
			m := newMemory(t)
			dirs := []string{t.TempDir(), t.TempDir()}
			if same {
				dirs[1] = dirs[0]
			}
			change := func(k int) {
				for i, dir := range dirs {
					if !same || i == 0 {
						writePod(t, dir, "web", boxPod("web", "Always", fmt.Sprintf("[sleep, %dh]", 2*k+i+1)))
					}
				}
			}
			change(0)
			var all []*watched
			for _, dir := range dirs {
				w := watchPaths(t, m, dir)
				w.await(t, "the goal", func() bool { return strings.Contains(w.notified.String(), "READY=1") })
				all = append(all, w)
			}
			for k := range 20 {
				change(k + 1)
				for _, w := range all {
					w.signals <- syscall.SIGHUP
				}
				if names := m.names(t); len(names) > 1 {
					t.Fatalf("running: %v", names)
				}
			}
			runs := func(w *watched) bool { return w.status() == "1 of 1 pod running" }
			settled := func(w *watched) bool {
				return runs(w) || w.status() == "0 of 1 pod running; default/web: Removed (Stopped)"
			}
			all[0].await(t, "the end of the storm", func() bool {
				return settled(all[0]) && settled(all[1]) && (runs(all[0]) || runs(all[1])) && len(m.names(t)) == 1
			})
			for _, w := range all {
				w.signals <- syscall.SIGTERM
				if code := <-w.code; code != 0 && code != 143 { // it may have read the manifests once more
					t.Errorf("exit code %d\n%s", code, w.stderr.String())
				}
			}
			if got := m.names(t); len(got) > 1 {
				t.Errorf("running: %v", got)
			}
		})
	}
}

// TestDownBeforeRetry: a failed pod that its Job is about to run again is not, once down has removed it.
func TestDownBeforeRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		began := m.noteStarts(nil)
		job := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n" +
			"      containers: [{name: main, image: \"localhost/box:1\", args: [exit, '1']}]\n"
		dir := t.TempDir()
		writePod(t, dir, "j", job)
		ended := make(chan invocation)
		go func() { ended <- invoke(t, m, "run", "--until", "completed", "--node", nodeFile(), dir) }()
		time.Sleep(5 * time.Second) // of the ten until it is run again
		if got := invoke(t, m, "down", dir); got.code != 0 || !strings.Contains(got.stdout, "removed") {
			t.Errorf("down: %+v", got)
		}
		if got := <-ended; got.code != 1 || !strings.Contains(got.stdout, "was stopped by process") {
			t.Errorf("run: %+v", got)
		}
		if got := began.list(); len(got) != 1 {
			t.Errorf("started: %v", got)
		}
	})
}
