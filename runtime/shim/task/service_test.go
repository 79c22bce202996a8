package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// TestContainer: a container from its creation to its deletion. Its log and its record are
// complete once its end is known.
func TestContainer(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	const lines = 5000
	r := s.request("a", fmt.Sprintf("for i in $(seq %d); do echo line; done; echo err >&2; exit 3", lines))
	s.must("Create", r)
	id := &ttrpc.Request{ID: "a"}
	s.stateIs(id, ttrpc.Created)
	s.refuses(ttrpc.AlreadyExists, "Create", r)
	if _, err := os.Stat(s.record("a")); err == nil {
		t.Error("a start is recorded")
	}
	s.must("Start", id)
	if r, err := protocol.Read(s.record("a")); err != nil || r.StartedAt.IsZero() {
		t.Errorf("record %+v, %v", r, err)
	}
	if code := s.wait(id); code != 3 {
		t.Errorf("exit code %d", code)
	}
	end, err := protocol.Read(s.record("a"))
	if err != nil || !end.Ended() || end.ExitCode != 3 || end.StartedAt.IsZero() || end.OOMKilled {
		t.Errorf("record %+v, %v", end, err)
	}
	out := s.logLines()
	if n := strings.Count(strings.Join(out, "\n"), "stdout F line"); n != lines || len(out) != lines+1 {
		t.Errorf("%d lines of %d", n, len(out))
	}
	s.stateIs(id, ttrpc.Stopped)
	s.refuses(ttrpc.FailedPrecondition, "Start", id)
	s.refuses(ttrpc.NotFound, "Kill", &ttrpc.KillRequest{Request: *id, Signal: 9})
	s.must("Shutdown", id)
	select {
	case <-s.Done():
		t.Error("it ends with a container")
	default:
	}
	if resp, ok := s.must("Delete", id).(*ttrpc.DeleteResponse); !ok || resp.Status != 3 || resp.PID == 0 {
		t.Errorf("deleted %+v", resp)
	}
	s.refuses(ttrpc.NotFound, "State", id)
	s.must("Shutdown", id)
	<-s.Done()
	_, err = s.call(t.Context(), "Create", s.request("b", ""))
	if err == nil {
		t.Error("an ending shim creates a container")
	}
	if diff := cmp.Diff([]string{"create", "delete"}, firstWords(s.commands())); diff != "" {
		t.Error(diff)
	}
}

func firstWords(text string) []string {
	var words []string
	for line := range strings.Lines(text) {
		words = append(words, strings.Fields(line)[0])
	}
	return words
}

// TestReservedSpace: a container that fills the disk finds the space for the record of its end taken.
func TestReservedSpace(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.run("exec sleep 1000")
	if _, err := os.Stat(protocol.ReservePath(s.record("a"))); err != nil {
		t.Error(err)
	}
}

// TestNoLog: a container without a log has its output dropped, and a record.
func TestNoLog(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	r := s.request("a", "echo out || exit 9; exit 4")
	r.Stdout = protocol.Output{RecordPath: s.record("a")}.URI()
	s.must("Create", r)
	s.must("Start", &ttrpc.Request{ID: "a"})
	if code := s.wait(&ttrpc.Request{ID: "a"}); code != 4 {
		t.Errorf("exit code %d", code)
	}
	if r, err := protocol.Read(s.record("a")); err != nil || r.ExitCode != 4 {
		t.Errorf("record %+v, %v", r, err)
	}
}

func TestCreateFails(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	bad := s.request("a", "")
	bad.Options.TypeURL = "other.Options"
	s.refuses(ttrpc.InvalidArgument, "Create", bad)
	bad = s.request("a", "")
	bad.Checkpoint = "/x"
	s.refuses(ttrpc.Unimplemented, "Create", bad)
	s.refuses(ttrpc.Unimplemented, "Checkpoint", &ttrpc.Request{ID: "a"})
	bad = s.request("a", "")
	bad.Stdout = protocol.Output{LogPath: filepath.Join(s.dir, "none", "log")}.URI()
	if _, err := s.call(t.Context(), "Create", bad); err == nil {
		t.Error("a log in no directory")
	}
	// What the OCI runtime writes where the container would is not the container's output.
	bad = s.request("a", "")
	fails := filepath.Join(s.root, "fail-create")
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.call(t.Context(), "Create", bad); err == nil || err.Error() != "OCI runtime create failed: the cause" {
		t.Errorf("%v", err)
	}
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	if out := s.logLines(); len(out) > 0 {
		t.Errorf("log %q", out)
	}
	bad = s.request("a", "")
	bad.Rootfs = append(bad.Rootfs, ttrpc.Mount{Type: "none", Target: "/x"})
	s.refuses(ttrpc.Unimplemented, "Create", bad)
	// And its name can be used.
	s.run("exit 0")
}

// TestKill: a signal reaches the first process, or is left to the OCI runtime when others do not
// end with it.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		shared  bool
		request ttrpc.KillRequest
		runtime string // command of the runtime
		code    uint32
	}{
		{name: "one", request: ttrpc.KillRequest{Signal: 15}, code: 143},
		{name: "all of a PID namespace", request: ttrpc.KillRequest{Signal: 9, All: true}, code: 137},
		{name: "all with another signal", request: ttrpc.KillRequest{Signal: 2, All: true}, runtime: "kill --all a 2"},
		{name: "all of several containers", shared: true, request: ttrpc.KillRequest{Signal: 9, All: true}, runtime: "kill --all a 9"},
		{name: "one of several containers", shared: true, request: ttrpc.KillRequest{Signal: 9}, code: 137},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newShim(t, "")
			r := s.request("a", "exec sleep 1000")
			if tc.shared {
				if err := os.WriteFile(filepath.Join(r.Bundle, "config.json"), []byte("{}"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s.must("Create", r)
			s.must("Start", &ttrpc.Request{ID: "a"})
			tc.request.ID = "a"
			s.must("Kill", &tc.request)
			if tc.runtime != "" {
				if !strings.Contains(s.commands(), tc.runtime+"\n") {
					t.Errorf("commands:\n%s", s.commands())
				}
				return
			}
			if code := s.wait(&ttrpc.Request{ID: "a"}); code != tc.code {
				t.Errorf("exit code %d", code)
			}
			if strings.Contains(s.commands(), "kill --all a 9") != tc.shared {
				t.Errorf("commands:\n%s", s.commands())
			}
		})
	}
}

// TestBundleGone: a container whose bundle is gone can be killed and deleted.
func TestBundleGone(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.run("echo begun; exec sleep 1000")
	s.until("its output", func() bool { return len(s.logLines()) > 0 })
	if err := os.RemoveAll(filepath.Join(s.dir, "bundles", "a")); err != nil {
		t.Fatal(err)
	}
	s.must("Kill", &ttrpc.KillRequest{Request: ttrpc.Request{ID: "a"}, Signal: 9, All: true})
	s.wait(&ttrpc.Request{ID: "a"})
	s.must("Delete", &ttrpc.Request{ID: "a"})
}

// TestRuntimeHangs: while a command of the OCI runtime hangs, a container's state is known, and
// the command ends at the time that the caller gives.
func TestRuntimeHangs(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.run("exec sleep 1000")
	s.hang("pause")
	var failed chan error
	begun := func() bool { return strings.Contains(s.commands(), "pause a") }
	for limit := time.Second; !begun(); limit *= 2 { // until it is enough for the command to start
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		result := make(chan error, 1)
		failed = result
		go func() {
			_, err := s.call(ctx, "Pause", &ttrpc.Request{ID: "a"})
			result <- err
		}()
		s.until("the command, or its end", func() bool { return begun() || len(failed) > 0 })
	}
	s.stateIs(&ttrpc.Request{ID: "a"}, ttrpc.Running)
	s.must("Pids", &ttrpc.Request{ID: "a"})
	if err := <-failed; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	s.must("Kill", &ttrpc.KillRequest{Request: ttrpc.Request{ID: "a"}, Signal: 9})
	s.wait(&ttrpc.Request{ID: "a"})
}

// TestCreateCutOff: a creation ends with the connection of who asked for it, or with a deletion,
// and leaves nothing.
func TestCreateCutOff(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"connection", "deletion"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newShim(t, "")
			s.hang("create")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error)
			go func() {
				_, err := s.call(ctx, "Create", s.request("a", "exit 0"))
				failed <- err
			}()
			s.until("the command", func() bool {
				_, err := os.Stat(filepath.Join(s.root, "commands"))
				return err == nil && strings.Contains(s.commands(), "create")
			})
			s.refuses(ttrpc.NotFound, "State", &ttrpc.Request{ID: "a"})
			if how == "deletion" {
				s.refuses(ttrpc.NotFound, "Delete", &ttrpc.Request{ID: "a"})
			} else {
				cancel()
			}
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			if !strings.Contains(s.commands(), "delete --force a\n") {
				t.Errorf("commands:\n%s", s.commands())
			}
			s.must("Shutdown", &ttrpc.Request{ID: "a"})
			<-s.Done()
		})
	}
}

// TestPause: a container is paused and resumed, and its processes with it.
func TestPause(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	id := &ttrpc.Request{ID: "a"}
	s.run("exec sleep 1000")
	s.refuses(ttrpc.FailedPrecondition, "Resume", id)
	s.must("Pause", id)
	s.stateIs(id, ttrpc.Paused)
	s.must("Kill", &ttrpc.KillRequest{Request: *id, Signal: 9}) // runc thaws it
	s.must("Resume", id)
	s.stateIs(id, ttrpc.Running)
	s.must("Update", &ttrpc.UpdateRequest{ID: "a", Resources: ttrpc.Any{Value: []byte("{}")}})
	if diff := cmp.Diff([]string{"create", "pause", "kill", "resume", "update"}, firstWords(s.commands())); diff != "" {
		t.Error(diff)
	}
}

// TestConnectAndPids: containerd learns the processes' numbers. The first one counts wherever it
// is, while it runs.
func TestConnectAndPids(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	if resp, ok := s.must("Connect", &ttrpc.Request{ID: "a"}).(*ttrpc.ConnectResponse); !ok || resp.ShimPID != uint32(os.Getpid()) || resp.TaskPID != 0 {
		t.Errorf("%+v", resp)
	}
	s.run("exec sleep 1000")
	c, err := s.container("a")
	if err != nil {
		t.Fatal(err)
	}
	if resp, ok := s.must("Connect", &ttrpc.Request{ID: "a"}).(*ttrpc.ConnectResponse); !ok || resp.TaskPID != uint32(c.init.pid) {
		t.Errorf("%+v", resp)
	}
	c.oom.dir = t.TempDir() // a cgroup without processes
	if resp, ok := s.must("Pids", &ttrpc.Request{ID: "a"}).(*ttrpc.PidsResponse); !ok || len(resp.Processes) != 1 || resp.Processes[0].PID != uint32(c.init.pid) {
		t.Errorf("%+v", resp)
	}
	if err := os.WriteFile(filepath.Join(c.oom.dir, "cgroup.procs"), []byte("7\n8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if resp, ok := s.must("Pids", &ttrpc.Request{ID: "a"}).(*ttrpc.PidsResponse); !ok || len(resp.Processes) != 2 || resp.Processes[1].PID != 8 {
		t.Errorf("%+v", resp)
	}
	if err := os.WriteFile(filepath.Join(c.oom.dir, "cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("Kill", &ttrpc.KillRequest{Request: ttrpc.Request{ID: "a"}, Signal: 9})
	s.wait(&ttrpc.Request{ID: "a"})
	if resp, ok := s.must("Pids", &ttrpc.Request{ID: "a"}).(*ttrpc.PidsResponse); !ok || len(resp.Processes) != 0 {
		t.Errorf("%+v", resp)
	}
}

// TestIdle: a shim that nobody uses ends, unless it has a container.
func TestIdle(t *testing.T) {
	t.Parallel()
	unused := newService("", 0)
	used := newShim(t, "")
	used.Service = newService("", 0)
	used.run("exec sleep 1000")
	<-unused.Done()
	select {
	case <-used.Done():
		t.Error("it ended with a container")
	default:
	}
	used.must("Kill", &ttrpc.KillRequest{Request: ttrpc.Request{ID: "a"}, Signal: 9})
	used.wait(&ttrpc.Request{ID: "a"})
	used.must("Delete", &ttrpc.Request{ID: "a"})
	<-used.Done()
}

// TestLeave: whoever has ended the shim finds it no more. While it has containers, it stays.
func TestLeave(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	left := false
	s.o.Leave = func() { left = true }
	s.run("exit 0")
	s.wait(&ttrpc.Request{ID: "a"})
	s.must("Shutdown", &ttrpc.Request{ID: "a"})
	if left {
		t.Error("it has left its container")
	}
	s.must("Delete", &ttrpc.Request{ID: "a"})
	s.must("Shutdown", &ttrpc.Request{ID: "a"})
	if !left {
		t.Error("it is still there")
	}
}

// TestLimited: a command outlives the connection of who asked for it, not the time that they
// gave, nor the limit.
func TestLimited(t *testing.T) {
	t.Parallel()
	asked, cancel := context.WithTimeout(t.Context(), time.Hour)
	ctx, end := limited(asked, time.Minute)
	defer end()
	cancel()
	if d, ok := ctx.Deadline(); ctx.Err() != nil || !ok || time.Until(d) > time.Minute {
		t.Errorf("%v, until %s", ctx.Err(), d)
	}
	asked, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx, end = limited(asked, time.Hour)
	defer end()
	if d, ok := ctx.Deadline(); !ok || time.Until(d) > time.Minute {
		t.Errorf("until %s", d)
	}
}
