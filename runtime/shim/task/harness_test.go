package task

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// fakeRuntime is an OCI runtime without isolation. A container's program is a script in its
// bundle, or that of its process. It hangs while a file says so, and notes its commands.
const fakeRuntime = `#!/bin/sh
root=$2; shift 4
[ "$1" != --log ] || { log=$2; shift 2; }
command=$1
echo "$@" >>$root/commands
for a; do
	case $last in
	--bundle) bundle=$a;;
	--pid-file) pid=$a;;
	--process) process=$a;;
	esac
	last=$a
done
[ ! -e $root/hang-$command ] || sleep 1000
[ ! -e $root/fail-$command ] || { echo failed >&2; echo '{"level": "error", "msg": "the cause"}' >$log; exit 1; }
exec 3<&0
case $command in
create)
	mkdir $root/$last
	mkfifo $root/$last/exec.fifo
	touch $root/$last/state.json
	(echo 0 >$root/$last/exec.fifo; exec sh $bundle/program) <&3 3<&- &
	echo $! >$pid;;
exec)
	script=$(sed 's/.*"script":"\([^"]*\)".*/\1/' $process)
	# A shell that still runs would reap it: it begins once this process is another program.
	mkfifo $root/go-$$
	(read go <$root/go-$$; exec sh -c "$script") <&3 3<&- &
	echo $! >$pid
	exec printf '\n' >$root/go-$$;;
delete)
	rm -rf $root/$last;;
esac
`

var (
	runtimePath string
	reaper      *oci.Reaper
)

// TestMain writes the runtime before any process is started, which would make it busy.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "task-")
	if err == nil {
		runtimePath = filepath.Join(dir, "fakec")
		err = os.WriteFile(runtimePath, []byte(fakeRuntime), 0o700)
	}
	if err == nil {
		reaper, err = oci.NewReaper()
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// shim is a service with its files.
type shim struct {
	*Service
	t    *testing.T
	root string // of the runtime
	dir  string
}

// newService returns a service with so many clients.
func newService(address string, clients int) *Service {
	return New(Options{Namespace: "ns", Address: address, Reaper: reaper, Connections: func() int { return clients }, Leave: func() {}})
}

func newShim(t *testing.T, address string) *shim {
	t.Helper()
	dir := t.TempDir()
	s := &shim{Service: newService(address, 1), t: t, root: filepath.Join(dir, "ns"), dir: dir}
	if err := os.Mkdir(s.root, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// No process of the test's may outlive it, nor write to its directory.
		s.mu.Lock()
		all := slices.Collect(maps.Values(s.containers))
		s.mu.Unlock()
		for _, c := range all {
			if !c.isCreated() {
				continue
			}
			_ = reaper.Signal(c.init.pid, 9) // one that has ended may still be recorded
			select {
			case <-c.init.done:
			case <-time.After(time.Minute):
				t.Error("a container has not ended")
			}
		}
	})
	return s
}

func (s *shim) record(id string) string { return filepath.Join(s.dir, id+".record") }
func (s *shim) log(id string) string    { return filepath.Join(s.dir, id+".log") }

// request returns the request for a container that runs a script in a PID namespace of its own.
func (s *shim) request(id, program string) *ttrpc.CreateRequest {
	s.t.Helper()
	bundle := filepath.Join(s.dir, "bundles", id)
	out := protocol.Output{LogPath: s.log(id), RecordPath: s.record(id)}.URI()
	spec := `{"linux": {"namespaces": [{"type": "pid"}]}}`
	if err := errors.Join(os.MkdirAll(bundle, 0o700), os.WriteFile(filepath.Join(bundle, "program"), []byte(program), 0o600),
		os.WriteFile(filepath.Join(bundle, "config.json"), []byte(spec), 0o600)); err != nil {
		s.t.Fatal(err)
	}
	return &ttrpc.CreateRequest{
		ID: id, Bundle: bundle, Stdio: ttrpc.Stdio{Stdout: out, Stderr: out},
		Options: ttrpc.Any{TypeURL: optionsType, Value: ttrpc.Marshal(&ttrpc.Options{BinaryName: runtimePath, Root: s.dir})},
	}
}

// call calls a method as containerd does.
func (s *shim) call(ctx context.Context, method string, m ttrpc.Message) (ttrpc.Message, error) {
	return s.Handle(ctx, method, ttrpc.Marshal(m))
}

// must calls a method that succeeds.
func (s *shim) must(method string, m ttrpc.Message) ttrpc.Message {
	s.t.Helper()
	resp, err := s.call(s.t.Context(), method, m)
	if err != nil {
		s.t.Fatalf("%s: %v", method, err)
	}
	return resp
}

// refuses calls a method that fails with the code.
func (s *shim) refuses(code uint32, method string, m ttrpc.Message) {
	s.t.Helper()
	_, err := s.call(s.t.Context(), method, m)
	var e *ttrpc.Error
	if !errors.As(err, &e) || e.Code != code {
		s.t.Errorf("%s: %v, want code %d", method, err, code)
	}
}

// run creates and starts container a.
func (s *shim) run(program string) {
	s.t.Helper()
	s.must("Create", s.request("a", program))
	s.must("Start", &ttrpc.Request{ID: "a"})
}

// wait returns the exit code of a container.
func (s *shim) wait(r *ttrpc.Request) uint32 {
	s.t.Helper()
	exit, ok := s.must("Wait", r).(*ttrpc.Exit)
	if !ok || exit.At.IsZero() {
		s.t.Fatalf("exit %+v", exit)
	}
	return exit.Status
}

func (s *shim) stateIs(r *ttrpc.Request, want uint32) {
	s.t.Helper()
	state, ok := s.must("State", r).(*ttrpc.StateResponse)
	if !ok || state.State != want {
		s.t.Errorf("state %+v, want %d", state, want)
	}
}

// commands returns the commands of the runtime.
func (s *shim) commands() string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, "commands"))
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

// hang makes the runtime hang in a command.
func (s *shim) hang(command string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.root, "hang-"+command), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for a condition.
func (s *shim) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: it never came", what)
		}
	}
}

func (s *shim) logLines() []string {
	s.t.Helper()
	text, err := os.ReadFile(s.log("a"))
	if err != nil {
		s.t.Error(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		_, line, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		lines = append(lines, line)
	}
	return lines
}
