package enginetest

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

// Subject is an engine under test.
type Subject struct {
	Engine engine.Engine
	// Present is the reference of an image in the store that holds the test program.
	Present string
	// Absent is a reference that no store and no registry knows.
	Absent string
	// Config describes a container of the pod that runs the test program with the
	// arguments. Its LogPath is in a directory of the test.
	Config func(t *testing.T, podUID, name string, args ...string) engine.ContainerConfig
	// Mounts says that containers have the mounts of their specs.
	Mounts bool
	// Reopen leaves the engine without stopping anything, as the end of a process does, and
	// opens it like a later process. It calls between while nothing watches.
	Reopen func(t *testing.T, between func()) engine.Engine
}

// limit bounds each wait. It is generous: a test that reaches it has failed.
const limit = 3 * time.Minute

// Conform tests everything that engine.Engine promises. open makes a new subject for each
// test; what the test starts is removed after it.
func Conform(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, s Subject)
	}{
		{"start and exit code", conformExit},
		{"a running container is listed", conformRunning},
		{"out of memory", conformOutOfMemory},
		{"what a container has used", conformUsage},
		{"output is in the log", conformLog},
		{"stop with grace", conformStop},
		{"stop of a process that ignores the signal", conformKill},
		{"stop by somebody who does not wait", conformStopCanceled},
		{"absent containers", conformAbsent},
		{"start twice", conformTwice},
		{"start that fails leaves nothing", conformFailedStart},
		{"remove kills and forgets", conformRemove},
		{"containers of one pod", conformPods},
		{"last termination is kept", conformLast},
		{"exec", conformExec},
		{"exec cut off", conformExecCutOff},
		{"exec with streams", conformExecStreams},
		{"attach", conformAttach},
		{"attach before the start", conformAttachCreated},
		{"files", conformFiles},
		{"events", conformEvents},
		{"images", conformImages},
		{"a pause process", conformPause},
		{"the process namespace of another container", conformTarget},
		{"a later process finds what runs", conformReopen},
		{"a later process finds the exit code", conformReopenExit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() { removeAll(t, s.Engine) })
			tt.run(t, s)
		})
	}
}

func removeAll(t *testing.T, e engine.Engine) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	defer cancel()
	all, err := e.Containers(ctx, "")
	if err != nil {
		t.Logf("listing containers after the test: %v", err)
	}
	for _, c := range all {
		if err := e.Remove(ctx, c.ID); err != nil {
			t.Errorf("removing container %q after the test: %v", c.ID, err)
		}
	}
}

// start starts a container and fails the test when it cannot.
func start(t *testing.T, s Subject, pod, name string, args ...string) engine.ContainerConfig {
	t.Helper()
	c := s.Config(t, pod, name, args...)
	if err := s.Engine.Start(t.Context(), c); err != nil {
		t.Fatalf("Start(%q): %v", args, err)
	}
	return c
}

// find returns the container with the ID, and whether there is one.
func find(t *testing.T, e engine.Engine, id string) (engine.Container, bool) {
	t.Helper()
	all, err := e.Containers(t.Context(), "")
	if err != nil {
		t.Fatalf("Containers: %v", err)
	}
	for _, c := range all {
		if c.ID == id {
			return c, true
		}
	}
	return engine.Container{}, false
}

// awaitExit returns the container once it has exited.
func awaitExit(t *testing.T, e engine.Engine, id string) engine.Container {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if c, ok := find(t, e, id); ok && c.State == engine.StateExited {
			return c
		}
	}
	c, ok := find(t, e, id)
	t.Fatalf("container %q is %q (found: %t), want it to have exited", id, c.State, ok)
	return c
}

// awaitLog waits until the container has written the text.
func awaitLog(t *testing.T, c engine.ContainerConfig, want string) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile(c.LogPath); err == nil && strings.Contains(string(text), want) {
			return
		}
	}
	t.Fatalf("container %q did not write %q", c.ID, want)
}

func conformExit(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "job", "exit", "3")
	got := awaitExit(t, s.Engine, c.ID)
	if got.Exit.ExitCode != 3 || got.Exit.OOMKilled {
		t.Errorf("exit = %+v, want code 3", got.Exit)
	}
	if got.Exit.FinishedAt.Before(got.Exit.StartedAt) || got.Exit.StartedAt.IsZero() {
		t.Errorf("ran from %v to %v", got.Exit.StartedAt, got.Exit.FinishedAt)
	}
}

func conformRunning(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "sleep")
	got, ok := find(t, s.Engine, c.ID)
	if !ok || got.State != engine.StateRunning {
		t.Fatalf("container is %q (found: %t) right after Start", got.State, ok)
	}
	if got.PodUID != "pod1" || got.Name != "web" || got.Attempt != c.Attempt || got.Image != s.Present {
		t.Errorf("listed as %+v, started as %+v", got, c)
	}
	if got.LogPath != c.LogPath || got.Labels["suite"] != "conform" || got.ImageID == "" {
		t.Errorf("listed with log %q, labels %v, image ID %q", got.LogPath, got.Labels, got.ImageID)
	}
	if got.StartedAt.IsZero() || got.CreatedAt.IsZero() {
		t.Errorf("created %v, started %v", got.CreatedAt, got.StartedAt)
	}
}

func conformLog(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "talk", "exit", "0", "hello", "log")
	awaitExit(t, s.Engine, c.ID)
	// The exit is reported only once the log is complete: no wait here.
	text, err := os.ReadFile(c.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(strings.TrimSpace(string(text)), " stdout F hello log") {
		t.Errorf("log = %q", text)
	}
}

func conformStop(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "trap")
	// PID 1 ignores a signal that it has no handler for yet.
	awaitLog(t, c, "ready")
	if err := s.Engine.Stop(t.Context(), c.ID, syscall.SIGTERM, limit); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	got, ok := find(t, s.Engine, c.ID)
	if !ok || got.State != engine.StateExited || got.Exit.ExitCode == 137 {
		t.Errorf("after Stop: %q, exit code %d (found: %t)", got.State, got.Exit.ExitCode, ok)
	}
}

func conformStopCanceled(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "trap")
	awaitLog(t, c, "ready")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Engine.Stop(ctx, c.ID, syscall.SIGTERM, limit); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("Stop: %v", err)
	}
	if got := awaitExit(t, s.Engine, c.ID); got.Exit.ExitCode == 137 {
		t.Errorf("exit code %d, want that of its handler", got.Exit.ExitCode)
	}
}

func conformKill(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "deaf", "stay")
	awaitLog(t, c, "deaf from now on")
	if err := s.Engine.Stop(t.Context(), c.ID, syscall.SIGTERM, 100*time.Millisecond); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if got := awaitExit(t, s.Engine, c.ID); got.Exit.ExitCode != 137 {
		t.Errorf("exit code %d, want 137", got.Exit.ExitCode)
	}
}

func conformAbsent(t *testing.T, s Subject) {
	if err := s.Engine.Stop(t.Context(), "nobody", syscall.SIGTERM, time.Second); err != nil {
		t.Errorf("Stop of an absent container: %v", err)
	}
	if err := s.Engine.Remove(t.Context(), "nobody"); err != nil {
		t.Errorf("Remove of an absent container: %v", err)
	}
	if _, err := s.Engine.Exec(t.Context(), "nobody", []string{"/bin/box"}); err == nil {
		t.Error("Exec in an absent container succeeded")
	}
	c := start(t, s, "pod1", "job", "exit", "0")
	awaitExit(t, s.Engine, c.ID)
	if err := s.Engine.Stop(t.Context(), c.ID, syscall.SIGTERM, time.Second); err != nil {
		t.Errorf("Stop of a container that has exited: %v", err)
	}
}

func conformTwice(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "sleep")
	if err := s.Engine.Start(t.Context(), c); err == nil {
		t.Error("Start of a running container succeeded")
	}
	if got, _ := find(t, s.Engine, c.ID); got.State != engine.StateRunning {
		t.Errorf("the container is %q after a second Start, want it untouched", got.State)
	}
	j := start(t, s, "pod1", "job", "exit", "4")
	awaitExit(t, s.Engine, j.ID)
	if err := s.Engine.Start(t.Context(), j); err != nil {
		t.Errorf("Start over a container that has exited: %v", err)
	}
	awaitExit(t, s.Engine, j.ID)
}

func conformFailedStart(t *testing.T, s Subject) {
	c := s.Config(t, "pod1", "typo", "sleep")
	c.Spec.Process.Args = []string{"/bin/no-such-command"}
	err := s.Engine.Start(t.Context(), c)
	if err == nil {
		t.Fatal("Start of a command that does not exist succeeded")
	}
	if !failure.IsPermanent(err) || !failure.IsRefused(err) {
		t.Errorf("%v: permanent %v, refused %v", err, failure.IsPermanent(err), failure.IsRefused(err))
	}
	if !strings.Contains(err.Error(), "no-such-command") {
		t.Errorf("%v: does not name the command", err)
	}
	if _, ok := find(t, s.Engine, c.ID); ok {
		t.Error("a container that did not start is left behind")
	}
}

func conformRemove(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "stay")
	if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	if _, ok := find(t, s.Engine, c.ID); ok {
		t.Error("the container is still listed")
	}
	if err := s.Engine.Remove(t.Context(), c.ID); err != nil {
		t.Errorf("second Remove: %v", err)
	}
	start(t, s, "pod1", "web", "sleep")
}

func conformPods(t *testing.T, s Subject) {
	a := start(t, s, "pod1", "a", "sleep")
	b := start(t, s, "pod1", "b", "sleep")
	start(t, s, "pod2", "a", "sleep")
	all, err := s.Engine.Containers(t.Context(), "pod1")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].ID != a.ID || all[1].ID != b.ID {
		t.Errorf("containers of pod1 = %+v, want %q, %q in order of creation", all, a.ID, b.ID)
	}
}

func conformLast(t *testing.T, s Subject) {
	c := s.Config(t, "pod1", "web", "sleep")
	c.Attempt = 4
	c.Last = &engine.Exit{ContainerID: "web-3", Attempt: 3, ExitCode: 9, Message: strings.Repeat("m", 4096)}
	if err := s.Engine.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	got, _ := find(t, s.Engine, c.ID)
	if got.Attempt != 4 || got.Last == nil || got.Last.ExitCode != 9 || got.Last.Message != c.Last.Message {
		t.Errorf("attempt %d, last %+v", got.Attempt, got.Last)
	}
}

func conformExecCutOff(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "sleep")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Engine.Exec(ctx, c.ID, []string{"/bin/box", "sleep"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Exec: %v, want the end of its time", err)
	}
	if got, ok := find(t, s.Engine, c.ID); !ok || got.State != engine.StateRunning {
		t.Errorf("container is %q after its command was cut off", got.State)
	}
}

func conformEvents(t *testing.T, s Subject) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	events, err := s.Engine.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, s, "pod1", "job", "exit", "0")
	want := []engine.EventType{engine.EventStarted, engine.EventExited}
	for e := range events {
		if e.ContainerID != c.ID || len(want) == 0 || e.Type != want[0] {
			continue
		}
		if e.PodUID != "pod1" {
			t.Errorf("event %+v does not name the pod", e)
		}
		if want = want[1:]; len(want) == 0 {
			// After the event of an exit, the exit must be visible.
			if got, _ := find(t, s.Engine, c.ID); got.State != engine.StateExited {
				t.Errorf("container is %q after its exit event", got.State)
			}
			cancel()
		}
	}
	if len(want) > 0 {
		t.Errorf("no event %v", want)
	}
}

func conformImages(t *testing.T, s Subject) {
	img, err := s.Engine.Image(t.Context(), s.Present)
	if err != nil {
		t.Fatalf("Image: %v", err)
	}
	if img.Ref == "" || img.ID == "" || len(img.Passwd) == 0 {
		t.Errorf("image = %+v", img)
	}
	if _, err := s.Engine.Image(t.Context(), s.Absent); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("absent image: %v, want ErrNotFound", err)
	}
	if _, err := s.Engine.Pull(t.Context(), s.Absent); err == nil {
		t.Error("pulling an image that no registry has succeeded")
	}
}

func conformPause(t *testing.T, s Subject) {
	c := s.Config(t, "pod1", "POD")
	c.Pause, c.Image, c.LogPath = true, "", ""
	if err := s.Engine.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	before, _ := find(t, s.Engine, c.ID)
	e := s.Reopen(t, func() {})
	t.Cleanup(func() { removeAll(t, e) })
	got, _ := find(t, e, c.ID)
	if got.State != engine.StateRunning || got.PID <= 0 || got.PID != before.PID {
		t.Errorf("a later process sees %q with process %d, want the running process %d", got.State, got.PID, before.PID)
	}
	// PID 1 ignores a signal that it has no handler for yet.
	if err := e.Stop(t.Context(), c.ID, syscall.SIGTERM, time.Second); err != nil {
		t.Error(err)
	}
	if got := awaitExit(t, e, c.ID); got.PID != 0 {
		t.Errorf("it has ended and is process %d", got.PID)
	}
}

func conformReopen(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "trap")
	awaitLog(t, c, "ready")
	e := s.Reopen(t, func() {})
	t.Cleanup(func() { removeAll(t, e) })
	got, ok := find(t, e, c.ID)
	if !ok || got.State != engine.StateRunning || got.Name != "web" || got.StartedAt.IsZero() {
		t.Fatalf("a later process sees %+v (found: %t)", got, ok)
	}
	if err := e.Stop(t.Context(), c.ID, syscall.SIGTERM, limit); err != nil {
		t.Errorf("a later process stops it: %v", err)
	}
}

func conformReopenExit(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "job", "do", "sleep 500ms", "echo bye", "exit 5")
	e := s.Reopen(t, func() { awaitLog(t, c, "bye") })
	t.Cleanup(func() { removeAll(t, e) })
	if got := awaitExit(t, e, c.ID); got.Exit.ExitCode != 5 || got.Exit.FinishedAt.IsZero() {
		t.Errorf("a later process sees %+v", got.Exit)
	}
	if e = s.Reopen(t, func() {}); e == nil {
		t.Fatal("cannot be opened a third time")
	}
	if got := awaitExit(t, e, c.ID); got.Exit.ExitCode != 5 {
		t.Errorf("a third process sees %+v", got.Exit)
	}
}
