package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	lib "github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// TestMain makes the test's program the shim.
func TestMain(m *testing.M) {
	if Invoked(os.Args) {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

func TestInvoked(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{
		"runonce":                              false,
		"runonce run dir":                      false,
		"runonce -v":                           false,
		"runonce -namespace runonce -id a":     true,
		"runonce -info":                        true,
		"runonce runonce-logger runonce:///x":  true,
		"runonce pause":                        true,
		"runonce --namespace=runonce ps pause": false,
	} {
		if got := Invoked(strings.Fields(args)); got != want {
			t.Errorf("%q: %v", args, got)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	a, err := parse(strings.Fields("-namespace ns -address /a -publish-binary /p -id i -bundle /b -debug delete"))
	if err != nil || a != (arguments{namespace: "ns", id: "i", address: "/a", bundle: "/b", command: "delete"}) {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err = parse([]string{"-v"}); err != nil || !a.version {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err = parse([]string{"-none"}); err == nil {
		t.Error("no error")
	}
}

// bundle makes a bundle of a container of a group.
func bundle(t *testing.T, dir, id, group string) string {
	t.Helper()
	path := filepath.Join(dir, id)
	spec := fmt.Sprintf(`{"annotations": {"io.containerd.runc.v2.group": %q}}`, group)
	if err := errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(filepath.Join(path, "config.json"), []byte(spec), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// command runs a command of the shim as containerd does.
func command(t *testing.T, dir, id, name string, input []byte) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/proc/self/exe", "-namespace", "ns", "-address", "/none", "-publish-binary", "/p", "-id", id, name)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SECRET=1", "TTRPC_ADDRESS=/none.ttrpc")
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func params(t *testing.T, id, sockets string) []byte {
	t.Helper()
	p := &bootapi.BootstrapParams{InstanceID: id, Namespace: "ns", SocketDir: &sockets, ContainerdTtrpcAddress: "/none.ttrpc"}
	value, err := proto.Marshal(&options.Options{BinaryName: "runc"})
	if err == nil {
		p.Extensions = []*bootapi.Extension{{Value: &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: value}}}
	}
	data, merr := proto.Marshal(p)
	if err := errors.Join(err, merr); err != nil {
		t.Fatal(err)
	}
	return data
}

// connect connects to the shim at the path.
func connect(t *testing.T, path string) task.TTRPCTaskService {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := lib.NewClient(conn)
	t.Cleanup(func() { _ = c.Close() })
	return task.NewTTRPCTaskClient(c)
}

// socketDir returns a directory whose name is short enough for sockets.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestStart: the containers of a group find one shim, also when they are started at the same
// time and where a dead one has left its socket.
func TestStart(t *testing.T) {
	t.Parallel()
	dir, sockets := t.TempDir(), socketDir(t)
	stale := protocol.SocketPath(sockets, "/none", "ns", "group")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var starts sync.WaitGroup
	for i := range 6 {
		id := fmt.Sprint("c", i)
		path := bundle(t, dir, id, "group")
		starts.Go(func() {
			out, err := command(t, path, id, "start", params(t, id, sockets))
			var r bootapi.BootstrapResult
			if err != nil || proto.Unmarshal([]byte(out), &r) != nil || r.Address != "unix://"+stale || r.Version != 3 || r.Protocol != "ttrpc" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	starts.Wait()
	shim := connect(t, stale)
	resp, err := shim.Connect(t.Context(), &task.ConnectRequest{ID: "c0"})
	if err != nil {
		t.Fatal(err)
	}
	checkProcess(t, int(resp.ShimPid))
	if _, err := shim.Shutdown(t.Context(), &task.ShutdownRequest{ID: "c0"}); err != nil && !errors.Is(err, lib.ErrClosed) {
		t.Error(err) // it may end before it answers
	}
	awaitNone(t, sockets, int(resp.ShimPid))
}

// checkProcess: the shim has nothing of who started it, and each socket once: one that it closes is closed.
func checkProcess(t *testing.T, pid int) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", pid)
	env, err := os.ReadFile(proc + "environ")
	if err != nil || strings.Contains(string(env), "SECRET") || !strings.Contains(string(env), "TTRPC_ADDRESS=/none.ttrpc") {
		t.Errorf("environment %q, %v", env, err)
	}
	if dir, err := os.Readlink(proc + "cwd"); err != nil || dir != "/" {
		t.Errorf("directory %q, %v", dir, err)
	}
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	if f := strings.Fields(rest); f[3] != fmt.Sprint(pid) {
		t.Errorf("session %s", f[3])
	}
	fds, err := filepath.Glob(proc + "fd/*")
	if err != nil {
		t.Fatal(err)
	}
	open := map[string]int{}
	for _, fd := range fds {
		name, _ := os.Readlink(fd)
		if open[name]++; open[name] > 1 && strings.HasPrefix(name, "socket:") {
			t.Errorf("%s is open more than once", name)
		}
	}
	line, err := os.ReadFile(proc + "cmdline")
	if err != nil || !strings.Contains(string(line), "\x00-namespace\x00ns\x00") || !strings.Contains(string(line), "\x00-address\x00/none\x00") {
		t.Errorf("arguments %q, %v", line, err)
	}
}

// awaitNone waits until the shim has ended and its socket is gone.
func awaitNone(t *testing.T, sockets string, pid int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		left, err := os.ReadDir(sockets)
		_, alive := os.Stat(fmt.Sprintf("/proc/%d/cwd/.", pid)) // not of a zombie
		if err == nil && len(left) == 0 && alive != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v, %v", left, alive)
		}
	}
}

// TestStartForOldContainerd: a containerd before 2.3 sends other input, and reads an address.
func TestStartForOldContainerd(t *testing.T) {
	t.Parallel()
	a := arguments{namespace: "ns", address: "/none"}
	path := bundle(t, t.TempDir(), "old", "group")
	roottest.Require(t) // for defaultSockets
	want := "unix://" + protocol.SocketPath(defaultSockets, a.address, a.namespace, "group")
	out, err := command(t, path, "old", "start", nil)
	if err != nil || out != want {
		t.Fatalf("%q, %v", out, err)
	}
	if saved, err := os.ReadFile(filepath.Join(path, "address")); err != nil || string(saved) != want {
		t.Errorf("%q, %v", saved, err)
	}
	if _, err := connect(t, strings.TrimPrefix(want, "unix://")).Shutdown(t.Context(), &task.ShutdownRequest{}); err != nil && !errors.Is(err, lib.ErrClosed) {
		t.Error(err) // it may end before it answers
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if out, err := command(t, t.TempDir(), "a", "start", params(t, "a", socketDir(t))); err == nil || !strings.Contains(out, "config.json") {
		t.Errorf("%q, %v", out, err)
	}
	path := bundle(t, t.TempDir(), "a", "")
	p := &bootapi.BootstrapParams{InstanceID: "a", Namespace: "ns", SocketDir: proto.String(socketDir(t))}
	value, err := proto.Marshal(&options.Options{ShimCgroup: "/none/none"})
	if err != nil {
		t.Fatal(err)
	}
	p.Extensions = []*bootapi.Extension{{Value: &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: value}}}
	data, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, path, "a", "start", data); err == nil || !strings.Contains(out, "joining cgroup") {
		t.Errorf("%q, %v", out, err)
	}
	if left, err := os.ReadDir(p.GetSocketDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestDelete: what a dead shim has left is deleted with the OCI runtime, if that knows the
// container still. What a running shim has is left alone, and so is a new bundle.
func TestDelete(t *testing.T) {
	t.Parallel()
	ended := exec.CommandContext(t.Context(), "true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		known bool // to the OCI runtime
		owner int  // PID
		ran   bool
	}{
		{name: "known", known: true, owner: ended.Process.Pid, ran: true},
		{name: "unknown", owner: ended.Process.Pid},
		{name: "a running shim's", known: true, owner: os.Getpid()},
		{name: "not created yet", known: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, root := bundle(t, dir, "a", ""), filepath.Join(dir, "root")
			program := filepath.Join(dir, "rt")
			exectest.Write(t, program, "#!/bin/sh\necho \"$@\" >"+dir+"/ran\n")
			err := os.WriteFile(filepath.Join(path, "init.pid"), []byte("77"), 0o600)
			if test.owner != 0 {
				started, _ := process.StartTime(test.owner)
				o := oci.Owner{PID: test.owner, Started: started, Options: ttrpc.Options{BinaryName: program, Root: root}}
				err = errors.Join(err, o.Write(path))
			}
			if test.known {
				err = errors.Join(err, os.MkdirAll(filepath.Join(root, "ns", "a"), 0o700))
			}
			if err != nil {
				t.Fatal(err)
			}
			out, err := command(t, path, "a", "delete", nil)
			var r task.DeleteResponse
			if err != nil || proto.Unmarshal([]byte(out), &r) != nil || r.Pid != 77 || r.ExitStatus != 137 || r.ExitedAt.AsTime().IsZero() {
				t.Errorf("%q, %v", out, err)
			}
			ran, err := os.ReadFile(filepath.Join(dir, "ran"))
			if want := "--root " + root + "/ns --log-format json delete --force a\n"; test.ran != (err == nil) || test.ran && string(ran) != want {
				t.Errorf("ran %q, %v", ran, err)
			}
		})
	}
}

// TestInfo: containerd learns what the OCI runtime that the options name can do.
func TestInfo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "rt")
	value, err := proto.Marshal(&options.Options{BinaryName: program})
	if err != nil {
		t.Fatal(err)
	}
	input, err := proto.Marshal(&anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: value})
	if err != nil {
		t.Fatal(err)
	}
	exectest.Write(t, program, "#!/bin/sh\nprintf '{\"%s\": 1}' \"$5\"\n")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-info")
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.Output()
	var i types.RuntimeInfo
	if err != nil || proto.Unmarshal(out, &i) != nil || string(i.Features.GetValue()) != `{"features": 1}` || !bytes.Equal(i.Options.GetValue(), value) {
		t.Errorf("%v, %v", &i, err)
	}
}

// TestLogger: the logger says that it is ready, writes the log, and ends with the output.
func TestLogger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := protocol.Output{LogPath: filepath.Join(dir, "log"), RecordPath: filepath.Join(dir, "record")}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", protocol.LoggerArg, out.URI())
	var ours []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			r, w = w, r // it writes
		}
		cmd.ExtraFiles, ours = append(cmd.ExtraFiles, r), append(ours, w)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range cmd.ExtraFiles {
		_ = f.Close()
	}
	if n, err := ours[2].Read(make([]byte, 2)); n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	if _, err := os.Stat(out.LoggingPath()); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_, err := ours[1].WriteString("late\n")
	if err := errors.Join(err, ours[0].Close(), ours[1].Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(out.LogPath); err != nil || !strings.HasSuffix(string(text), " stderr F late\n") {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := os.Stat(out.LoggingPath()); err == nil {
		t.Error("it still says that it works")
	}
}
