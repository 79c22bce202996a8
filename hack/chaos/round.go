package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/testing/disk"
)

// limit is the timeout of each command. It is generous: a command that reaches it hangs.
const limit = 3 * time.Minute

// round is one round: pods, and what was done to them.
type round struct {
	*world
	kind     kind
	pods     []*v1.Pod
	services []*v1.Service  // of some of the pods, which are in the same directory
	order    [][]dependency // of the pods
	dirs     []string       // of manifests; the first runs serve the others
	ledgers  string
	broken   []string
	faults   []string        // their names
	killed   map[string]bool // pods whose containers may have been killed; "" is any pod
	removed  bool            // pods may have been removed, and what they had counted
	commands []*command
	done     []*command // all that were started
	disk     disk.Disk  // of the root, in rounds that have one

	counted, instances int
	preStops           []string // files that preStop hooks of running containers will write
}

// String describes the round.
func (r *round) String() string {
	words := make([]string, 0, len(r.pods))
	for n, p := range r.pods {
		words = append(words, describe(p)+r.describeOrder(n))
	}
	return strings.Join(words, " ") + ": " + strings.Join(r.broken, ", ")
}

// newRound makes random pods, for one run or for two at the same time.
func (w *world) newRound() *round {
	r := &round{world: w, kind: w.chooseKind(), ledgers: filepath.Join(w.dir, "ledgers"), killed: map[string]bool{}}
	pods := 1 + w.IntN(6)
	if r.kind.order {
		pods = max(pods, 3)
	}
	for n := range pods {
		p := newPod(w.Rand, n, w.firstPort, r.ledgers)
		if r.kind.edit != nil {
			r.kind.edit(w.Rand, p)
		}
		r.pods = append(r.pods, p)
	}
	r.dirs = []string{filepath.Join(w.dir, "a")}
	if len(r.pods) > 1 && (r.kind.twoRuns || w.IntN(3) == 0) {
		r.dirs = append(r.dirs, filepath.Join(w.dir, "b"))
	}
	r.addServices()
	if r.kind.order {
		r.addOrder()
	}
	return r
}

func (r *round) run(ctx context.Context) (err error) {
	if r.kind.disk != nil {
		if err := r.kind.disk(ctx, r); err != nil {
			return err
		}
		defer func() {
			if err == nil { // else somebody wants to see what is there
				err = r.unmount()
			}
		}()
	}
	if err := r.write(); err != nil {
		return err
	}
	before, err := r.installation().Inspect(ctx)
	if err != nil {
		return err
	}
	for range 1 + r.IntN(3) {
		if err := r.kind.disturb(ctx, r); err != nil {
			return err
		}
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	if out := r.do(ctx, "down", "--all"); out.code != 0 {
		return fmt.Errorf("down --all: exit code %d: %s", out.code, out.stderr)
	}
	if err := errors.Join(r.verifyPreStops(), r.verifyNothingLeft(ctx, before)); err != nil {
		return err
	}
	for _, dir := range append(r.dirs, r.ledgers, filepath.Join(r.dir, "logs")) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// write writes the manifests.
func (r *round) write() error {
	for _, dir := range append(r.dirs, r.ledgers) {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	for n := range r.pods {
		if err := r.writeManifest(n); err != nil {
			return err
		}
	}
	return r.writeServices()
}

// writeManifest writes, or replaces, the manifest of a pod.
func (r *round) writeManifest(n int) error {
	return r.writeObject(n, r.pods[n].Name, r.pods[n])
}

// writeObject writes an object into the directory of a pod.
func (r *round) writeObject(n int, name string, o any) error {
	text, err := yaml.Marshal(o)
	if err != nil {
		return err
	}
	path := filepath.Join(r.dirs[n%len(r.dirs)], name+".yaml")
	hidden := filepath.Join(r.dir, "new.yaml")
	if err := os.WriteFile(hidden, text, 0o644); err != nil {
		return err
	}
	return os.Rename(hidden, path)
}

// writeCommands writes what the commands of the round have printed into a file.
func (r *round) writeCommands() error {
	var text bytes.Buffer
	for _, c := range r.done {
		if c.exited() {
			fmt.Fprintf(&text, "%s %s: %s\n%s%s\n", c.begin.Format(time.RFC3339Nano), c.cmd, c.cmd.ProcessState, c.stdout.String(), c.stderr.String())
		}
	}
	return os.WriteFile(filepath.Join(r.dir, "commands.log"), text.Bytes(), 0o644)
}

// disturb runs the pods, once or until it has broken enough, and breaks something meanwhile.
func disturb(ctx context.Context, r *round) error {
	r.commands = nil
	for _, dir := range r.dirs {
		args, watch := r.runArgs(dir), r.IntN(3) == 0
		if watch {
			args[0] = "watch"
		}
		c, err := r.start(ctx, args...)
		if err != nil {
			return err
		}
		c.watch = watch
		r.commands = append(r.commands, c)
	}
	for range 1 + r.IntN(2) {
		pause(ctx, time.Duration(r.IntN(900))*time.Millisecond)
		if err := r.breakSomething(ctx); err != nil {
			return err
		}
	}
	return r.endCommands(ctx)
}

// breakSomething does the first of the faults, in random order, that is possible now.
func (r *round) breakSomething(ctx context.Context) error {
	for _, i := range r.Perm(len(faults)) {
		f := faults[i]
		hit, err := f.do(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if hit != "" {
			r.breaks(f.name, hit)
			return nil
		}
	}
	return nil
}

// breaks notes what was done to the round.
func (r *round) breaks(name, hit string) {
	r.broken, r.faults = append(r.broken, name+" ("+hit+")"), append(r.faults, name)
}

func (r *round) runArgs(dir string) []string {
	return []string{
		"run", "-o", "json", "--images-dir", r.archives, "--capacity", "cpu=8,memory=16Gi,pods=200",
		"--settle", "0", "--retry-delay", "200ms", "--until", "completed", dir,
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// command is a runonce at work.
type command struct {
	name     string // its last argument, without the directory
	cmd      *exec.Cmd
	watch    bool // does not end by itself
	begin    time.Time
	done     chan struct{}
	timedOut bool // valid when done
	stdout   bytes.Buffer
	stderr   bytes.Buffer
}

// output is what a command has printed.
type output struct {
	code           int
	stdout, stderr string
	timedOut       bool
}

// start starts a command with the installation's flags.
func (r *round) start(ctx context.Context, args ...string) (*command, error) {
	c := &command{name: filepath.Base(args[len(args)-1]), begin: time.Now(), done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, limit)
	args = append(args, "--root", r.dir+"/root", "--state", r.dir+"/state", "--log-dir", r.dir+"/logs", "--log-level", "debug")
	if r.daemon != nil {
		args = append(args, "--address", r.daemon.Socket)
	}
	c.cmd = exec.CommandContext(ctx, r.program, args...)
	c.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir}
	if r.runtime != "" {
		c.cmd.Env = append(c.cmd.Env, "RUNONCE_OCI_RUNTIME="+r.runtime)
	}
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	r.done = append(r.done, c)
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait()
		c.timedOut = ctx.Err() != nil
		cancel()
	}()
	return c, nil
}

func (c *command) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// signal sends a signal, and returns the name of the command unless it has ended.
func (c *command) signal(sig syscall.Signal) (string, error) {
	if c == nil {
		return "", nil
	}
	if err := c.cmd.Process.Signal(sig); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		return "", err
	}
	return c.name, nil
}

// wait waits for the command, which is killed when it takes too long.
func (c *command) wait() output {
	<-c.done
	return output{c.cmd.ProcessState.ExitCode(), c.stdout.String(), c.stderr.String(), c.timedOut}
}

// do runs a command.
func (r *round) do(ctx context.Context, args ...string) output {
	c, err := r.start(ctx, args...)
	if err != nil {
		return output{code: -1, stderr: err.Error()}
	}
	return c.wait()
}

// report is what a run reports, or ps.
type report struct {
	ExitCode int   `json:"exitCode"`
	Results  []row `json:"results"`
	Pods     []row `json:"pods"`
}

type row struct {
	Name       string      `json:"name"`
	Outcome    string      `json:"outcome"`
	Reason     string      `json:"reason"`
	Message    string      `json:"message"`
	Containers []container `json:"containers"`
}

type container struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	ExitCode *int   `json:"exitCode"`
	Restarts int    `json:"restarts"`
}

// ask runs a command that prints JSON.
func (r *round) ask(ctx context.Context, args ...string) (report, output, error) {
	out := r.do(ctx, args...)
	var rep report
	if err := json.Unmarshal([]byte(out.stdout), &rep); err != nil {
		return rep, out, fmt.Errorf("%s: exit code %d, no JSON: %w: %s%s", strings.Join(args, " "), out.code, err, out.stdout, out.stderr)
	}
	return rep, out, nil
}
