package cmd_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/engine"
)

// TestExec: what of the command line is for the command, and the exit codes.
func TestExec(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	if got := invoke(t, m, "run", "--settle", "0", "--node", nodeFile(), manifest(t, "web", "Always", "[sleep]")); got.code != 0 {
		t.Fatal(got)
	}
	for _, tt := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{args: "web -- box echo hello", stdout: "hello"},
		{args: "pod/web -c main -- box echo hello", stdout: "hello"},
		{args: "default/web -n default -- box echo -c x", stdout: "-c x"},
		{args: "-i web -- box echo out", stdout: "in out"},
		{args: "-it web -- box echo out", stdout: "in out", stderr: "Unable to use a TTY: input is not a terminal\n"},
		{args: "web -- box exit 9", code: 9},
		{args: "web -- box exit 125", code: 125},
		{args: "web", code: 125, stderr: "runonce: exec needs a COMMAND: runonce exec web -- COMMAND\n"},
		{args: "-- box", code: 125, stderr: "runonce: exec needs a POD\n"},
		{args: "web box exit 9", code: 125, stderr: "runonce: put \"--\" before the command: runonce exec web -- box exit 9\n"},
		{args: "nobody -- box", code: 125, stderr: "runonce: no pod \"nobody\" on this machine; see \"runonce ps\"\n"},
		{args: "-n other web -- box", code: 125, stderr: "runonce: no pod \"web\" on this machine; see \"runonce ps\"\n"},
		{args: "-c nobody web -- box", code: 125, stderr: "runonce: pod \"default/web\" has no container \"nobody\"; it has: main\n"},
		{args: "--env X web -- box", code: 125, stderr: "runonce: --env \"X\": must be KEY=VALUE\n"},
		{args: "--what web -- box", code: 125, stderr: "runonce: unknown flag --what; see \"runonce exec --help\"\n"},
		{args: "-ix web -- box", code: 125, stderr: "runonce: unknown flag --ix; see \"runonce exec --help\"\n"},
		{args: "-u nobody web -- box", code: 125, stderr: "runonce: no user \"nobody\" in /etc/passwd of image \"localhost/box:1\"\n"},
		{args: "--context x -u 1 web -- box", code: 125, stderr: "runonce: --user is about this machine and has no meaning on a cluster\n"},
	} {
		own := []string{"exec", "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log")}
		got := invokeWith(t, cmd.IO{Open: m.open, Stdin: strings.NewReader("in ")}, append(own, strings.Fields(tt.args)...)...)
		if got.code != tt.code || got.stdout != tt.stdout || got.stderr != tt.stderr {
			t.Errorf("%s: %d %q %q, want %d %q %q", tt.args, got.code, got.stdout, got.stderr, tt.code, tt.stdout, tt.stderr)
		}
	}
}

// recorder is a terminal, and a guard, that record what becomes of them.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *recorder) Raw() (func(), error) {
	r.note("raw")
	return func() { r.note("restored") }, nil
}

func (*recorder) Size() engine.Size                        { return engine.Size{} }
func (*recorder) Sizes(context.Context) <-chan engine.Size { return nil }
func (r *recorder) guard(backend.Options, string, string) (func(), error) {
	r.note("guarded")
	return func() { r.note("released") }, nil
}

// TestExecTerminal: the terminal is restored, and the guard released, whatever becomes of the command.
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	if got := invoke(t, m, "run", "--settle", "0", "--node", nodeFile(), manifest(t, "web", "Always", "[sleep]")); got.code != 0 {
		t.Fatal(got)
	}
	for args, want := range map[string][]string{
		"-it web -- box exit 3":        {"guarded", "raw", "released", "restored"},
		"-t web -- box exit 3":         {"guarded", "released"},
		"-i web -- box exit 3":         {"guarded", "released"},
		"-it -c nobody web -- box":     nil,
		"-it web -- box echo no error": {"guarded", "raw", "released", "restored"},
	} {
		r := &recorder{}
		own := []string{"exec", "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log")}
		world := cmd.IO{Open: m.open, Stdin: strings.NewReader(""), Terminal: r, Guard: r.guard}
		if invokeWith(t, world, append(own, strings.Fields(args)...)...); !slices.Equal(r.calls, want) {
			t.Errorf("%s: %q, want %q", args, r.calls, want)
		}
	}
}
