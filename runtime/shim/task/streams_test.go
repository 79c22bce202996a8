package task

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// exec adds and starts a process in container a, and returns what names it.
func (s *shim) exec(id, script string, io ttrpc.Stdio) *ttrpc.Request {
	s.t.Helper()
	r := ttrpc.Request{ID: "a", ExecID: id}
	s.must("Exec", &ttrpc.ExecRequest{Request: r, Stdio: io, Spec: ttrpc.Any{Value: []byte(`{"script":"` + script + `"}`)}})
	s.stateIs(&r, ttrpc.Created)
	s.must("Start", &r)
	return &r
}

// TestExec: a command in a container has its output in a FIFO and its exit code, and leaves no
// files.
func TestExec(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.run("exec sleep 1000")
	fifo := filepath.Join(s.dir, "out")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// Nobody reads yet: that must not block.
	r := s.exec("x", "echo out; exit 7", ttrpc.Stdio{Stdout: fifo, Stderr: fifo})
	s.refuses(ttrpc.AlreadyExists, "Exec", &ttrpc.ExecRequest{Request: *r, Spec: ttrpc.Any{Value: []byte("{}")}})
	out, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	if code := s.wait(r); code != 7 {
		t.Errorf("exit code %d", code)
	}
	text := make([]byte, 100)
	n, err := out.Read(text)
	if err != nil || string(text[:n]) != "out\n" {
		t.Errorf("%q, %v", text[:n], err)
	}
	s.must("Delete", r)
	s.refuses(ttrpc.NotFound, "State", r)
	left, err := filepath.Glob(filepath.Join(s.dir, "bundles", "a", "x*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	r = s.exec("y", "exec sleep 1000", ttrpc.Stdio{})
	s.refuses(ttrpc.FailedPrecondition, "Delete", r)
	s.must("Kill", &ttrpc.KillRequest{Request: *r, Signal: 9})
	if code := s.wait(r); code != 137 {
		t.Errorf("exit code %d", code)
	}
	s.refuses(ttrpc.NotFound, "Kill", &ttrpc.KillRequest{Request: *r, Signal: 9})
	s.refuses(ttrpc.InvalidArgument, "Exec", &ttrpc.ExecRequest{Request: ttrpc.Request{ID: "a", ExecID: "z"}})
	s.must("Kill", &ttrpc.KillRequest{Request: ttrpc.Request{ID: "a"}, Signal: 9})
	s.wait(&ttrpc.Request{ID: "a"})
	s.must("Exec", &ttrpc.ExecRequest{Request: ttrpc.Request{ID: "a", ExecID: "z"}, Spec: ttrpc.Any{Value: []byte("{}")}})
	s.refuses(ttrpc.FailedPrecondition, "Start", &ttrpc.Request{ID: "a", ExecID: "z"})
}

// TestTiedExec: a process that is tied ends with the connection over which it was started, and is deleted. Another one
// does not.
func TestTiedExec(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	s.run("exec sleep 1000")
	socket := filepath.Join(s.dir, "socket")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := ttrpc.Server{Handle: s.Handle, Idle: func() {}}
	go func() { _ = server.Serve(t.Context(), l) }()
	t.Cleanup(func() { _ = l.Close() })
	conn, err := protocol.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	stream := uint32(1)
	call := func(method string, m ttrpc.Message) {
		t.Helper()
		if err := ttrpc.Call(conn, stream, protocol.TaskService, method, m); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		stream += 2
	}
	tied, other := ttrpc.Request{ID: "a", ExecID: "tied"}, ttrpc.Request{ID: "a", ExecID: "other"}
	for method, r := range map[string]ttrpc.Request{protocol.TiedExec: tied, "Exec": other} {
		call(method, &ttrpc.ExecRequest{Request: r, Spec: ttrpc.Any{Value: []byte(`{"script":"sleep 1000; true"}`)}})
		call("Start", &r)
		s.stateIs(&r, ttrpc.Running)
	}
	_, p, err := s.process(tied)
	if err != nil {
		t.Fatal(err)
	}
	var family []int
	s.until("its child", func() bool { family = process.Descendants(p.pid); return len(family) == 1 })
	_ = conn.Close()
	s.until("its end", func() bool {
		_, err := s.call(t.Context(), "State", &tied)
		return err != nil && !process.Alive(family[0])
	})
	s.stateIs(&other, ttrpc.Running)
	s.must("Kill", &ttrpc.KillRequest{Request: other, Signal: 9})
	s.wait(&other)
}

// TestStdin: an input that nobody writes to stays open until it is closed; one of a FIFO has
// what is written to that.
func TestStdin(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	r := s.request("a", "cat; echo end")
	r.Stdin = protocol.Stdin
	s.must("Create", r)
	s.must("Start", &ttrpc.Request{ID: "a"})
	fifo := filepath.Join(s.dir, "in")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	x := s.exec("x", "read a; read b; exit $a$b", ttrpc.Stdio{Stdin: fifo})
	for _, line := range []string{"1\n", "2\n"} {
		if err := os.WriteFile(fifo, []byte(line), 0); err != nil {
			t.Fatal(err)
		}
	}
	if code := s.wait(x); code != 12 {
		t.Errorf("exit code %d", code)
	}
	s.stateIs(&ttrpc.Request{ID: "a"}, ttrpc.Running)
	s.must("CloseIO", &ttrpc.CloseIORequest{Request: ttrpc.Request{ID: "a"}, Stdin: true})
	s.wait(&ttrpc.Request{ID: "a"})
	if diff := cmp.Diff([]string{"stdout F end"}, s.logLines()); diff != "" {
		t.Error(diff)
	}
}

// TestFiles: output can go to files, as other clients of containerd ask for it.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := newShim(t, "")
	r := s.request("a", "echo out; echo err >&2")
	path := filepath.Join(s.dir, "deep", "both")
	r.Stdout, r.Stderr = "file://"+path, "file://"+path
	s.must("Create", r)
	s.must("Start", &ttrpc.Request{ID: "a"})
	s.wait(&ttrpc.Request{ID: "a"})
	if text, err := os.ReadFile(path); err != nil || string(text) != "out\nerr\n" {
		t.Errorf("%q, %v", text, err)
	}
	r = s.request("b", "")
	r.Stdout = "binary:///bin/true"
	s.refuses(ttrpc.InvalidArgument, "Create", r)
}

// TestOwner: the pipes belong to the root user of a user namespace.
func TestOwner(t *testing.T) {
	t.Parallel()
	roottest.Require(t)
	r, w, err := pipe(owner{100000, 200000})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{r, w})
	for _, f := range []*os.File{r, w} {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Uid != 100000 || st.Gid != 200000 {
			t.Errorf("%d, %d, %v", st.Uid, st.Gid, err)
		}
	}
}

// TestTerminal: the terminal comes through the socket, and what is written to it is in the log.
func TestTerminal(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	io := ttrpc.Stdio{Terminal: true, Stdout: protocol.Output{LogPath: log}.URI()}
	s, err := openStreams(t.Context(), io, owner{})
	if err != nil {
		t.Fatal(err)
	}
	path := s.args()[1]
	r, w, err := os.Pipe() // in the place of a terminal
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		t.Fatal("no unix socket")
	}
	if _, _, err := unixConn.WriteMsgUnix([]byte("pty"), unix.UnixRights(int(r.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	closeAll([]*os.File{r})
	if err := s.begin(io); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("the socket is left")
	}
	if err := s.resize(80, 25); err == nil {
		t.Error("a pipe has a size")
	}
	if _, err := w.WriteString("prompt\n"); err != nil {
		t.Fatal(err)
	}
	closeAll([]*os.File{w, nil})
	_ = conn.Close()
	s.copies.Wait()
	s.close()
	if text, err := os.ReadFile(log); err != nil || !strings.HasSuffix(string(text), " stdout F prompt\n") {
		t.Errorf("%q, %v", text, err)
	}
}
