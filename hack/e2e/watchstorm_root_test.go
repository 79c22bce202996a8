package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// buffer is written by a command and read by the test meanwhile.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// watcher is a watch command that runs beside the test.
type watcher struct {
	*exec.Cmd
	stdout, stderr buffer
}

func (b *box) watch(t *testing.T, dir string, args ...string) *watcher {
	t.Helper()
	w := &watcher{Cmd: b.command(t, "watch", b.upArgs(t, dir, args...)...)}
	w.Stdout, w.Stderr = &w.stdout, &w.stderr
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// send sends it a signal.
func (w *watcher) send(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := w.Process.Signal(sig); err != nil {
		t.Fatalf("%v\n%s", err, &w.stderr)
	}
}

// replace writes a manifest at once, as editors do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

// versions are "name UID" of the pods of which anything is left.
func (b *box) versions(t *testing.T) (all []string) {
	t.Helper()
	r := b.run(t, "ps", "-o", "json")
	var list struct {
		Pods []struct{ Name, UID string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil {
		t.Fatalf("%v\n%s%s", err, r.stdout, r.stderr)
	}
	for _, p := range list.Pods {
		all = append(all, p.Name+" "+p.UID)
	}
	slices.Sort(all)
	return all
}

// names are the names of the versions.
func names(versions []string) (names []string) {
	for _, v := range versions {
		name, _, _ := strings.Cut(v, " ")
		names = append(names, name)
	}
	return names
}

// TestWatchStorm: however changes and signals come, while pods start one after the other, only the last
// version of each pod stays.
func TestWatchStorm(t *testing.T) {
	const changes = 30
	b := newBox(t, "")
	dir := t.TempDir()
	pods := []string{"a", "b", "c", "d"}
	write := func(version string) {
		for _, name := range pods {
			replace(t, filepath.Join(dir, name+".yaml"), pod(name, "Always", "sleep", version))
		}
	}
	write("1h")
	w := b.watch(t, dir, "--parallel", "1")
	b.awaitPods(t, len(pods))
	for k := range changes {
		write(fmt.Sprintf("%dh", k+2))
		w.send(t, syscall.SIGHUP)
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond) // at any time of the start of the pods
	}
	write("99h")
	w.send(t, syscall.SIGHUP)
	last := func(p string) bool { return strings.HasSuffix(p, "/bin/box sleep 99h") }
	if !eventually(func() bool {
		return len(slices.DeleteFunc(b.processes(t), func(p string) bool { return !last(p) })) == len(pods)
	}) {
		t.Fatalf("the last versions do not run:\n%s\n%s", strings.Join(b.processes(t), "\n"), &w.stderr)
	}
	if !eventually(func() bool { return strings.Count(w.stderr.String(), ": Running") >= len(pods) }) {
		t.Fatalf("they do not count as running\n%s", &w.stderr)
	}
	w.send(t, syscall.SIGTERM)
	_ = w.Wait()
	if code := w.ProcessState.ExitCode(); code != 0 && code != 143 { // the last ones may not have settled
		t.Errorf("exit code %d\n%s", code, &w.stderr)
	}
	if got := names(b.versions(t)); !slices.Equal(got, pods) {
		t.Errorf("there are %v\n%s", got, &w.stderr)
	}
	b.awaitPods(t, len(pods))
}

// TestTwoWatches: two that want different versions of a pod, and get signals at once, do not fight for it:
// the last plan decides, and the other one says who has it.
func TestTwoWatches(t *testing.T) {
	b := newBox(t, "")
	one, other := directory(t, pod("web", "Always", "sleep", "1h")), directory(t, pod("web", "Always", "sleep", "2h"))
	first := b.watch(t, one)
	b.awaitProcess(t, "/bin/box sleep 1h")
	second := b.watch(t, other)
	b.awaitProcess(t, "/bin/box sleep 2h")
	for range 10 {
		first.send(t, syscall.SIGHUP)
		second.send(t, syscall.SIGHUP)
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	}
	first.send(t, syscall.SIGTERM)
	_ = first.Wait()
	if code := first.ProcessState.ExitCode(); code != 0 && code != 143 { // it may have taken the pod once more
		t.Errorf("exit code %d\n%s", code, &first.stderr)
	}
	if !strings.Contains(first.stderr.String(), `default/web: Removed: pod "web" was stopped by process `) {
		t.Errorf("the first one does not say who has the pod\n%s", &first.stderr)
	}
	second.send(t, syscall.SIGHUP)
	b.awaitProcess(t, "/bin/box sleep 2h")
	b.awaitPods(t, 1)
	second.send(t, syscall.SIGTERM)
	_ = second.Wait()
	if got := names(b.versions(t)); !slices.Equal(got, []string{"web"}) {
		t.Errorf("there are %v", got)
	}
}

// TestWatchAndDown: what down stops is no failure of watch, also if the container ends with an error.
func TestWatchAndDown(t *testing.T) {
	b := newBox(t, "")
	dir := directory(t, pod("web", "Never", "sleep", "1h"))
	w := b.watch(t, dir)
	b.awaitProcess(t, "/bin/box sleep 1h")
	if r := b.run(t, "down", dir); r.code != 0 {
		t.Errorf("down: exit code %d\n%s", r.code, r.stderr)
	}
	if !eventually(func() bool {
		return strings.Contains(w.stderr.String(), `default/web: Removed: pod "web" was stopped by process `)
	}) {
		t.Errorf("it does not say who has stopped the pod\n%s", &w.stderr)
	}
	w.send(t, syscall.SIGTERM)
	if _ = w.Wait(); w.ProcessState.ExitCode() != 0 {
		t.Errorf("exit code %d\n%s", w.ProcessState.ExitCode(), &w.stderr)
	}
	if got := b.versions(t); got != nil {
		t.Errorf("there are %v", got)
	}
}
