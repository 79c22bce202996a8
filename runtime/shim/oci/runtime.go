package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

const (
	// StartLimit bounds the runtime's commands that make or start a process. The engine has the
	// same limits, but the shim also runs commands of its own accord.
	StartLimit = 2 * time.Minute
	// EndLimit bounds the others.
	EndLimit = 30 * time.Second

	// killDelay bounds the wait for the end of a command that was killed.
	killDelay = 2 * time.Second
	maxOutput = 1 << 20
)

// Runtime is an OCI runtime.
type Runtime struct {
	Program       string // runc when it is empty
	Root          string // directory of its containers' state
	SystemdCgroup bool
	Reaper        *Reaper
}

// Command is a command of the runtime.
type Command struct {
	Args []string
	// Files are its standard input, output and error. Without them it has an empty input, and
	// its output is returned.
	Files []*os.File
	// Input is its standard input when there are no Files.
	Input []byte
	// Log is the path of a file for what it logs, empty for standard error.
	Log string
}

// Run runs a command to its end. When the context ends it is killed with the processes that it has
// started.
func (r *Runtime) Run(ctx context.Context, c Command) ([]byte, error) {
	program, err := exec.LookPath(cmp.Or(r.Program, "runc"))
	if err != nil {
		return nil, err
	}
	argv := []string{program, "--root", r.Root, "--log-format", "json"}
	if c.Log != "" {
		argv = append(argv, "--log", c.Log)
	}
	if r.SystemdCgroup {
		argv = append(argv, "--systemd-cgroup")
	}
	var output *os.File
	if c.Files == nil {
		// Files, since pipes would stay open with a child process of the command.
		in, err := memory(c.Input)
		if err != nil {
			return nil, err
		}
		defer func() { _ = in.Close() }()
		if output, err = memory(nil); err != nil {
			return nil, err
		}
		defer func() { _ = output.Close() }()
		c.Files = []*os.File{in, output, output}
	}
	e, err := r.run(ctx, append(argv, c.Args...), c.Files)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	if e.Status == 0 && output == nil {
		return nil, nil
	}
	data := read(output, c.Log)
	if e.Status != 0 {
		status := fmt.Sprintf("%s: exit status %d", filepath.Base(program), e.Status)
		text := cmp.Or(LastError(data), strings.TrimSpace(string(data)), status)
		if e.Status > 128 && e.Status <= 128+lastSignal && text != status {
			text += ": " + status // it was killed, whatever is in its log
		}
		return nil, errors.New(text + r.lackOfSpace(text))
	}
	return data, nil
}

// lastSignal is the highest of the kernel's (_NSIG). Runtimes exit with 255, too.
const lastSignal = 64

// enough is the space that a runtime needs for its files of a container, at most.
const enough = 64 << 10

// lackOfSpace says that there is no space for the runtime's files if its message does not: runc's has no
// cause when it cannot store a state, and none at all when it cannot write the log. Its own files are
// gone by now, and with them some of what was used.
func (r *Runtime) lackOfSpace(message string) string {
	no := unix.ENOSPC.Error()
	var fs unix.Statfs_t
	if strings.Contains(message, no) || unix.Statfs(r.Root, &fs) != nil || fs.Bavail*uint64(fs.Bsize) >= enough && (fs.Ffree > 0 || fs.Files == 0) {
		return ""
	}
	return fmt.Sprintf(": write %s: %s", r.Root, no)
}

func memory(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("oci", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "oci")
	_, err = f.WriteAt(data, 0)
	return f, err
}

// read returns what a command wrote or logged.
func read(output *os.File, log string) []byte {
	if output == nil {
		f, err := os.Open(log)
		if err != nil {
			return nil
		}
		defer func() { _ = f.Close() }()
		output = f
	}
	data, _ := io.ReadAll(io.NewSectionReader(output, 0, maxOutput))
	return data
}

func (r *Runtime) run(ctx context.Context, argv []string, files []*os.File) (Exit, error) {
	ended := make(chan Exit, 1)
	if err := ctx.Err(); err != nil {
		return Exit{}, err
	}
	attr := &syscall.ProcAttr{
		Env: environment(), Dir: "/",
		// In a process group of its own, so that the children of a script are killed as well.
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid, err := r.Reaper.Start(argv, attr, func(e Exit) { ended <- e })
	if err != nil {
		return Exit{}, err
	}
	select {
	case e := <-ended:
		return e, nil
	case <-ctx.Done():
	}
	r.kill(pid, ended)
	return Exit{}, ctx.Err()
}

// environment has a meaning for runc only when systemd runs it itself.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NOTIFY_SOCKET=") {
			env = append(env, v)
		}
	}
	return env
}

// LastError returns the last error of a log in JSON, empty without one.
func LastError(log []byte) string {
	last := ""
	for line := range strings.Lines(string(log)) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "error" {
			last = strings.TrimSpace(entry.Msg)
		}
	}
	return last
}

// Gone reports whether an error of a command says that the container or its process is gone.
func Gone(err error) bool {
	text := strings.ToLower(err.Error())
	gone := []string{"process already finished", "container not running", "no such process", "does not exist"}
	return slices.ContainsFunc(gone, func(s string) bool { return strings.Contains(text, s) })
}

// Spec is what a shim needs to know of a bundle's config.json.
type Spec struct {
	Annotations map[string]string
	Hooks       struct{ Poststart, Poststop []struct{ Path string } }
	Linux       struct {
		Namespaces  []struct{ Type, Path string }
		CgroupsPath string
		IntelRdt    *struct{}
	}
}

// ReadSpec reads the spec of a bundle.
func ReadSpec(bundle string) (s Spec, err error) {
	data, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	return s, err
}

// SharesPIDs reports whether the container is in the PID namespace of others, so that its
// processes do not end with the first one.
func (s Spec) SharesPIDs() bool {
	return !slices.Contains(s.Linux.Namespaces, struct{ Type, Path string }{"pid", ""})
}

// Start starts a created container. Its process waits for that at exec.fifo next to the state of runc and crun, whose
// "start" does nothing else, but is a whole run of the program. When anything is not as expected, the runtime does it,
// or reports what is wrong.
func (r *Runtime) Start(ctx context.Context, id string, spec Spec) error {
	if len(spec.Hooks.Poststart) == 0 && begin(filepath.Join(r.Root, id)) {
		return nil
	}
	_, err := r.Run(ctx, Command{Args: []string{"start", id}})
	return err
}

// begin lets the process of a created container become its program. It reports whether it has: not if the directory is
// not as that of a created container of runc (libcontainer's Container.exec) or crun (libcrun_container_start).
func begin(state string) bool {
	fifo := filepath.Join(state, "exec.fifo")
	if _, err := os.Stat(filepath.Join(state, "state.json")); err == nil {
		return readFIFO(fifo) == nil
	}
	_, err := os.Stat(filepath.Join(state, "status"))
	return err == nil && writeFIFO(fifo) == nil
}

// writeFIFO writes the byte that the process of a container of crun waits for. Without the FIFO, crun takes the
// container for running. It is an error if nobody waits.
func writeFIFO(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := os.Remove(path); err != nil {
		return err
	}
	_, err = f.Write([]byte{0})
	return err
}

// fifoTimeout bounds the wait for a created container's process to open exec.fifo.
const fifoTimeout = 5 * time.Second

// readFIFO opens the FIFO and waits for the byte that the process writes before it becomes
// the container's program.
func readFIFO(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	fd := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for deadline := time.Now().Add(fifoTimeout); time.Now().Before(deadline); {
		n, err := unix.Poll(fd, 100)
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err == nil {
			_, err = f.Read(make([]byte, 1))
		}
		if err == nil {
			err = os.Remove(path)
		}
		return err
	}
	return fmt.Errorf("waiting for %q: %w", path, fs.ErrNotExist)
}

// NewRuntime returns the runtime that the options name, for a namespace of containerd.
func NewRuntime(o ttrpc.Options, namespace string, r *Reaper) Runtime {
	root := cmp.Or(o.Root, "/run/containerd/runc")
	return Runtime{Program: o.BinaryName, Root: filepath.Join(root, namespace), SystemdCgroup: o.SystemdCgroup, Reaper: r}
}

// ownerFile is a file in a bundle that says which shim has the container, and how to run the OCI
// runtime for it. It is for the shim's command "delete".
const ownerFile = "owner.json"

// Owner is the shim that has a container.
type Owner struct {
	PID     int           `json:"pid"`
	Started string        `json:"started"` // as process.StartTime
	Options ttrpc.Options `json:"options"`
}

// self is when this process was started.
var self = sync.OnceValues(func() (string, error) { return process.StartTime(os.Getpid()) })

// Own writes into a bundle that this process has the container.
func Own(bundle string, o ttrpc.Options) error {
	started, err := self()
	if err != nil {
		return err
	}
	return Owner{os.Getpid(), started, o}.Write(bundle)
}

// Write writes the owner into a bundle.
func (o Owner) Write(bundle string) error {
	data, _ := json.Marshal(o) // texts and numbers
	return os.WriteFile(filepath.Join(bundle, ownerFile), data, 0o600)
}

// ReadOwner reads which shim has the container of a bundle. Before a shim creates the container
// the error is fs.ErrNotExist.
func ReadOwner(bundle string) (o Owner, err error) {
	data, err := os.ReadFile(filepath.Join(bundle, ownerFile))
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	return o, err
}

// Runs reports whether the shim still runs.
func (o Owner) Runs() bool { return process.Runs(o.PID, o.Started) }
