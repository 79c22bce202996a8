package oci

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// script makes a shell script the runtime.
func script(t *testing.T, text string) *Runtime {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "rt")
	// Not written by this process, which forks: the kernel would call the file busy.
	_, exit := sh(t, "printf '%s\n' '#!/bin/sh' "+quote(text)+" >"+path+"; chmod +x "+path)
	if e := <-exit; e.Status != 0 {
		t.Fatal(e)
	}
	return &Runtime{Program: path, Root: dir, Reaper: theReaper(t)}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func TestRun(t *testing.T) {
	t.Parallel()
	r := script(t, `echo "$@"; cat`)
	r.SystemdCgroup = true
	out, err := r.Run(t.Context(), Command{Args: []string{"update", "a"}, Input: []byte("input")})
	want := "--root " + r.Root + " --log-format json --systemd-cgroup update a\ninput"
	if err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}

// TestRunErrors: an error is what the runtime logs, or what it writes, or its exit code.
func TestRunErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ script, want string }{
		{`printf %s '{"level":"error","msg":"the cause\n","time":"x"}' >&2; exit 1`, "the cause"},
		{`echo '{"level":"error","msg":"first"}'; echo '{"level":"error","msg":"last"}'; echo '{"level":"info","msg":"no"}'; exit 1`, "last"},
		{`echo no such thing >&2; exit 1`, "no such thing"},
		{`exit 7`, "rt: exit status 7"},
		{`echo write to sync socket: Broken pipe >&2; kill -9 $$`, "write to sync socket: Broken pipe: rt: exit status 137"},
		{`kill -9 $$`, "rt: exit status 137"},
		{`echo no such program >&2; exit 255`, "no such program"},
	} {
		_, err := script(t, tc.script).Run(t.Context(), Command{Args: []string{"kill"}})
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v", tc.script, err)
		}
	}
	log := filepath.Join(t.TempDir(), "log.json")
	r := script(t, `echo '{"level":"error","msg":"runc create failed: x"}' >"$6"; exit 1`)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	_, err = r.Run(t.Context(), Command{Args: []string{"create"}, Files: []*os.File{null, null, null}, Log: log})
	if err == nil || err.Error() != "runc create failed: x" {
		t.Errorf("%v", err)
	}
	if _, err := (&Runtime{Program: "/none/rt", Reaper: theReaper(t)}).Run(t.Context(), Command{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestRunEndsWithItsContext: a command has ended with its children when Run returns, also with those in
// another session.
func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	r := script(t, "sleep 1000 & echo $! >"+file+".new; setsid sh -c 'echo $$ >>"+file+".new; mv "+file+".new "+file+"; sleep 1000' & wait")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var children []string
	go func() {
		for len(children) == 0 {
			text, _ := os.ReadFile(file)
			children = strings.Fields(string(text))
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := r.Run(ctx, Command{Args: []string{"kill"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, child := range children {
		// Its parent may have to reap it yet.
		if stat, err := os.ReadFile("/proc/" + child + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("a child still runs: %s", stat)
		}
	}
	if _, err := r.Run(ctx, Command{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestDeleteAgain: a container that the runtime has deleted already is gone, whatever the runtime says.
func TestDeleteAgain(t *testing.T) {
	t.Parallel()
	r := script(t, `echo "cannot open directory: No such file or directory" >&2; exit 1`)
	if err := errors.Join(r.Delete(t.Context(), "c", Spec{}), r.DeleteForced(t.Context(), "c")); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(r.Root, "c"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), "c", Spec{}); err == nil {
		t.Error("what is there counts as gone")
	}
}

func TestGone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"container not running":                       true,
		"os: process already finished":                true,
		"kill container: No such process":             true,
		"container does not exist":                    true,
		"permission denied":                           false,
		"unable to signal init: operation not permit": false,
	} {
		if got := Gone(errors.New(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestStart: the process that waits is started without the runtime, unless that has more to do.
func TestStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		spec   string
		state  string // name of the runtime's state file
		writes bool   // the container's process waits
		runs   bool   // the runtime itself is run
		left   bool   // the FIFO is still there
	}{
		{name: "start", spec: `{}`, state: "state.json", writes: true},
		{name: "nobody waits", spec: `{}`, state: "state.json", runs: true},
		{name: "hooks", spec: `{"hooks": {"poststart": [{"path": "/x"}]}}`, state: "state.json", writes: true, runs: true, left: true},
		{name: "other hooks", spec: `{"hooks": {"prestart": [{"path": "/x"}]}}`, state: "state.json", writes: true},
		{name: "crun", spec: `{}`, state: "status", writes: true},
		{name: "nobody waits in crun", spec: `{}`, state: "status", runs: true},
		{name: "hooks of crun", spec: `{"hooks": {"poststart": [{"path": "/x"}]}}`, state: "status", writes: true, runs: true, left: true},
		{name: "another runtime", spec: `{}`, state: "state", writes: true, runs: true, left: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := script(t, `echo "$@" >`+"$2/ran")
			bundle, state := t.TempDir(), filepath.Join(r.Root, "a")
			if err := errors.Join(os.Mkdir(state, 0o700), os.WriteFile(filepath.Join(state, tc.state), nil, 0o600), os.WriteFile(filepath.Join(bundle, "config.json"), []byte(tc.spec), 0o600)); err != nil {
				t.Fatal(err)
			}
			fifo := filepath.Join(state, "exec.fifo")
			if tc.writes {
				if err := syscall.Mkfifo(fifo, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			told := make(chan error, 1)
			switch {
			case !tc.writes || tc.runs:
				told <- nil
			case tc.state == "status":
				f, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					_, err := f.Read(make([]byte, 1))
					for ; errors.Is(err, io.EOF); _, err = f.Read(make([]byte, 1)) { // nobody has opened it yet
						time.Sleep(time.Millisecond)
					}
					told <- errors.Join(err, f.Close())
				}()
			default:
				go func() { told <- os.WriteFile(fifo, []byte("0"), 0) }()
			}
			spec, err := ReadSpec(bundle)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Start(t.Context(), "a", spec); err != nil {
				t.Fatal(err)
			}
			_, err = os.Stat(filepath.Join(r.Root, "ran"))
			if (err == nil) != tc.runs {
				t.Errorf("run: %v", err)
			}
			if _, err := os.Stat(fifo); (err == nil) != tc.left {
				t.Errorf("the FIFO: %v", err)
			}
			if err := <-told; err != nil {
				t.Errorf("the process of the container: %v", err)
			}
		})
	}
}

func TestSharesPIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{}`: true,
		`{"linux": {"namespaces": [{"type": "mount"}, {"type": "pid"}]}}`:           false,
		`{"linux": {"namespaces": [{"type": "pid", "path": "/proc/1/ns/pid"}]}}`:    true,
		`{"annotations": {"a": "b"}, "linux": {"namespaces": [{"type": "mount"}]}}`: true,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := ReadSpec(dir); err != nil || s.SharesPIDs() != want {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
}

// TestOwner: a bundle says which shim has its container, and whether that still runs.
func TestOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := ReadOwner(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	want := ttrpc.Options{BinaryName: "crun", Root: "/x", SystemdCgroup: true}
	if err := Own(dir, want); err != nil {
		t.Fatal(err)
	}
	o, err := ReadOwner(dir)
	if err != nil || o.Options != want || !o.Runs() {
		t.Errorf("%+v, %v", o, err)
	}
	o.Started = "1" // another process had this number
	if o.Runs() {
		t.Error("a process that has ended runs")
	}
	if r := NewRuntime(o.Options, "ns", nil); r.Root != "/x/ns" || r.Program != "crun" || !r.SystemdCgroup {
		t.Errorf("%+v", r)
	}
	if r := NewRuntime(ttrpc.Options{}, "ns", nil); r.Root != "/run/containerd/runc/ns" {
		t.Errorf("%+v", r)
	}
}
