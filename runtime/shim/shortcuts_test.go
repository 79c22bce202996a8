package shim

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	runc "github.com/containerd/go-runc"
)

// recorder is a monitor that runs nothing.
type recorder struct {
	runc.ProcessMonitor
	asked int
}

func (r *recorder) Start(*exec.Cmd) (chan runc.Exit, error) {
	r.asked++
	return succeeded(), nil
}

func (r *recorder) StartLocked(c *exec.Cmd) (chan runc.Exit, error) { return r.Start(c) }

func TestFIFOStarter(t *testing.T) {
	t.Parallel()
	const plainSpec = `{"process": {}}`
	for _, tc := range []struct {
		name   string
		args   []string // after the options
		spec   string
		state  string // name of the runtime's state file
		writes string // what the container's process writes
		runs   bool   // runc itself is run
	}{
		{name: "start", args: []string{"start", "a"}, spec: plainSpec, state: "state.json", writes: "0"},
		{name: "another command", args: []string{"delete", "a"}, spec: plainSpec, state: "state.json", runs: true},
		{name: "create named start", args: []string{"create", "--bundle", "x", "start"}, spec: plainSpec, state: "state.json", runs: true},
		{name: "hooks", args: []string{"start", "a"}, spec: `{"hooks": {"poststart": [{"path": "/x"}]}}`, state: "state.json", runs: true},
		{name: "other hooks", args: []string{"start", "a"}, spec: `{"hooks": {"prestart": [{"path": "/x"}]}}`, state: "state.json", writes: "0"},
		{name: "another runtime", args: []string{"start", "a"}, spec: plainSpec, state: "status", runs: true},
		{name: "no spec", args: []string{"start", "a"}, state: "state.json", runs: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			root, bundle := t.TempDir(), t.TempDir()
			state := filepath.Join(root, "a")
			fifo := filepath.Join(state, "exec.fifo")
			if err := errors.Join(
				os.Mkdir(state, 0o700),
				os.WriteFile(filepath.Join(state, tc.state), nil, 0o600),
				syscall.Mkfifo(fifo, 0o600),
			); err != nil {
				t.Fatal(err)
			}
			if tc.spec != "" {
				if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(tc.spec), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			process := make(chan error, 1)
			if tc.writes != "" {
				go func() { process <- os.WriteFile(fifo, []byte(tc.writes), 0) }()
			}
			cmd := exec.CommandContext(t.Context(), "runc", append([]string{"--root", root, "--log", filepath.Join(bundle, "log.json")}, tc.args...)...)
			inner := &recorder{}
			m := fifoStarter{ProcessMonitor: inner}
			exits, err := m.StartLocked(cmd)
			if err != nil {
				t.Fatal(err)
			}
			if got := inner.asked == 1; got != tc.runs {
				t.Fatalf("runc was run: %v", got)
			}
			if code, err := m.Wait(cmd, exits); code != 0 || err != nil {
				t.Errorf("exit code %d, %v", code, err)
			}
			if tc.runs {
				return
			}
			if err := <-process; err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(fifo); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the FIFO is still there: %v", err)
			}
		})
	}
}
