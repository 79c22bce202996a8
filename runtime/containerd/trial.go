package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runtime/ocispec"
)

const (
	// trialDir, below the root, has the bundle and the state of a trial while it lasts. It is
	// not below the state directory, from which nothing may be executable.
	trialDir = "trial"
	trialID  = "runonce-trial"
	// trialProgram is the program of the container, which is never started.
	trialProgram = "/trial"
	// trialsFile, below the root, has the OCI runtimes that work on this machine.
	trialsFile = "oci-runtimes.json"
	// trialTimeout bounds each command of a trial.
	trialTimeout = 30 * time.Second
)

// Trial says how to find out whether an OCI runtime works on this machine. runc is not tried: it
// works wherever containers do, and a trial of it would take 130 ms. Another one may refuse the
// machine's cgroups or the version of the spec.
type Trial struct {
	// Machine is all that a result depends on, besides the program: while it is the same, the
	// program is not tried again.
	Machine string
	// Spec returns the spec of a container as this program makes it, and a function that removes
	// what it needs on the machine. The process and the root file system are set by the engine.
	Spec func(ctx context.Context) (*specs.Spec, func() error, error)
}

// tryRuntimes tries the OCI runtimes that are used for the first time.
func (o *Options) tryRuntimes(ctx context.Context) error {
	if o.StartsNothing || o.Trial == nil {
		return nil
	}
	for _, h := range o.Handlers {
		if h.Shim != "" || isRunc(h.Binary) {
			continue
		}
		err := o.tryRuntime(ctx, h.Binary)
		var refused refusal
		switch {
		case errors.As(err, &refused):
			return failure.Unusable{Cause: o.trialError(h, refused)}
		case err != nil:
			return failure.Unusablef("trying the OCI runtime %s: %w", h.Binary, err)
		}
	}
	return nil
}

// TryRuntime has the OCI runtime of pods without a class create and delete a container, as Trial says, also if it is
// runc or has passed before. The files are in dir while that lasts, from which programs must be executable.
func TryRuntime(ctx context.Context, o Options, dir string) error {
	program, err := o.defaultProgram()
	if err != nil {
		return err
	}
	left, err := o.Trial.attempt(ctx, program, dir)
	var refused refusal
	if errors.As(err, &refused) {
		err = o.trialError(Handler{Name: DefaultHandler, Binary: program}, refused)
	}
	return errors.Join(err, left)
}

// attempt has a program create and delete a container. left is why what that needs was not removed.
func (t *Trial) attempt(ctx context.Context, program, dir string) (left, err error) {
	spec, release, err := t.Spec(ctx)
	if err != nil {
		return nil, err
	}
	err = trial{program: program, dir: dir}.run(ctx, spec)
	return release(), err
}

// isRunc reports whether the program is called runc.
func isRunc(program string) bool {
	path, err := filepath.EvalSymlinks(program)
	return err == nil && filepath.Base(path) == DefaultHandler
}

// tryRuntime tries one OCI runtime, unless it has passed before.
func (o *Options) tryRuntime(ctx context.Context, program string) error {
	identity, err := programIdentity(program)
	if err != nil {
		return err
	}
	identity += " on " + o.Trial.Machine
	file := filepath.Join(o.Root, trialsFile)
	if readTrials(file)[program] == identity {
		return nil
	}
	if err := os.MkdirAll(o.Root, 0o700); err != nil {
		return err
	}
	lock, err := flock.Acquire(ctx, filepath.Join(o.Root, trialDir+".lock"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(os.Remove(lock.Name()), lock.Close()) }()
	passed := readTrials(file)
	if passed[program] == identity {
		return nil // it has passed in another process meanwhile
	}
	left, err := o.Trial.attempt(ctx, program, filepath.Join(o.Root, trialDir))
	if left != nil {
		o.Log.Warn("could not clean up after the trial of an OCI runtime", "program", program, "error", left)
	}
	if err != nil {
		return err
	}
	passed[program] = identity
	data, _ := json.MarshalIndent(passed, "", "\t") // texts
	return atomicfile.Write(file, append(data, '\n'), 0o600)
}

// programIdentity is different for another file, and after every change of it.
func programIdentity(program string) (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(program, &st); err != nil {
		return "", fmt.Errorf("looking at the program: %w", err)
	}
	return fmt.Sprintf("%d:%d %d %d.%d", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec), nil
}

// readTrials returns the identities of the programs that work, by path. Without a file that can
// be read they are tried again.
func readTrials(file string) map[string]string {
	passed := map[string]string{}
	if data, err := os.ReadFile(file); err != nil || json.Unmarshal(data, &passed) != nil || passed == nil {
		return map[string]string{}
	}
	return passed
}

// trial has a program create and delete a container.
type trial struct{ program, dir string }

func (t trial) run(ctx context.Context, spec *specs.Spec) error {
	// A process that was killed may have left its trial.
	if err := t.clear(ctx); err != nil {
		return err
	}
	if err := t.writeBundle(spec); err != nil {
		return err
	}
	created := t.create(ctx, spec)
	// After a failure there may be nothing to delete.
	if err := t.clear(context.WithoutCancel(ctx)); created == nil {
		return err
	}
	return created
}

func (t trial) create(ctx context.Context, spec *specs.Spec) error {
	args := []string{"create", "--bundle", t.dir, "--pid-file", filepath.Join(t.dir, "pid"), trialID}
	if spec.Linux != nil && ocispec.InSlice(spec.Linux.CgroupsPath) {
		args = append([]string{"--systemd-cgroup"}, args...)
	}
	return t.command(ctx, args...)
}

// clear removes the container and all files.
func (t trial) clear(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(t.dir, "state")); err == nil {
		if err := t.command(ctx, "delete", "--force", trialID); err != nil {
			return err
		}
	}
	return os.RemoveAll(t.dir)
}

// writeBundle writes the bundle, with a process that has the seccomp profile and the limits of
// this program's containers.
func (t trial) writeBundle(spec *specs.Spec) error {
	own := ownSpec(spec)
	own.Root.Path = "rootfs"
	own.Process.Args, own.Process.Cwd = []string{trialProgram}, "/"
	own.Linux.Seccomp = seccomp.DefaultProfile(own)
	limitFiles(own.Process)
	data, err := json.Marshal(own)
	if err != nil {
		return err
	}
	rootfs := filepath.Join(t.dir, "rootfs")
	for _, dir := range []string{rootfs, filepath.Join(t.dir, "state")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(rootfs, trialProgram), nil, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(t.dir, "config.json"), data, 0o600)
}

// refusal is what a program says when it fails.
type refusal string

func (r refusal) Error() string { return string(r) }

// command runs a command of the program. An error is a refusal if the program fails.
func (t trial) command(ctx context.Context, args ...string) error {
	limited, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	// A file, since the created process keeps it open.
	out, err := os.Create(filepath.Join(t.dir, "output"))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(limited, t.program, slices.Concat([]string{"--root", filepath.Join(t.dir, "state")}, args)...)
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return refusal(fmt.Sprintf("it did not finish within %s: %s", trialTimeout, strings.Join(args, " ")))
	}
	said, rerr := os.ReadFile(out.Name())
	if rerr != nil {
		return rerr
	}
	return refusalOf(string(said), err)
}

// refusalOf returns the last line that a command has said, which tells the cause.
func refusalOf(said string, err error) refusal {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1]
	// runc writes a line of a log: time="..." level=error msg="..."
	if _, quoted, found := strings.Cut(last, " msg="); found {
		if text, err := strconv.Unquote(quoted); err == nil {
			last = text
		}
	}
	if last != "" {
		return refusal(failure.RuntimeMessage(errors.New(last), trialProgram))
	}
	return refusal(err.Error())
}

// trialError says which program does not work, why, and what to do.
func (o *Options) trialError(h Handler, cause refusal) error {
	if _, missing := lookPath(DefaultHandler, programDirs); missing != nil && h.Name == DefaultHandler && o.RuncPath == "" {
		return fmt.Errorf("no OCI runtime: runc is not %s, and %s cannot create a container on this machine: %w: install the package runc",
			searched(programDirs), h.Binary, cause)
	}
	err := fmt.Errorf("the OCI runtime %s cannot create a container on this machine: %w", h.Binary, cause)
	if isRunc(h.Binary) {
		return err
	}
	return fmt.Errorf("%w: %s", err, trialAdvice(string(cause)))
}

// trialAdvice says what to do about what an OCI runtime said.
func trialAdvice(cause string) string {
	switch {
	case strings.Contains(cause, "cgroups in hybrid mode not supported"):
		return "use runc (--oci-runtime runc), or boot with systemd.unified_cgroup_hierarchy=1"
	case strings.Contains(cause, "unknown version specified"):
		return "install a newer version of it, or use runc (--oci-runtime runc)"
	}
	return "install another version of it, or use runc (--oci-runtime runc)"
}
