package containerd

import (
	"cmp"
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
	// trialsFile, below the root, has the OCI runtimes that work on this machine; the one below the state directory has
	// those that do not.
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

// tryRuntimes returns the OCI runtime of pods without a class, sets the programs of handlers that name none, and tries the
// others that are used for the first time. Where nothing is started, nothing is tried, and no program has to be installed.
func (o *Options) tryRuntimes(ctx context.Context) (Choice, error) {
	var attempt func(program string) error
	if o.Trial != nil && !o.StartsNothing {
		attempt = func(program string) error { return o.tryOnce(ctx, program) }
	}
	chosen, err := o.choose(attempt)
	if err != nil && !o.StartsNothing {
		return chosen, err
	}
	for i := range o.Handlers {
		if err := o.tryHandler(ctx, &o.Handlers[i], attempt); err != nil && !o.StartsNothing {
			return chosen, err
		}
	}
	return chosen, nil
}

func (o *Options) tryHandler(ctx context.Context, h *Handler, attempt func(program string) error) error {
	switch {
	case h.Shim != "":
		return nil
	case h.Binary == "":
		picked, err := o.pick(attempt)
		h.Binary = picked.Path
		return err
	case attempt == nil || isRunc(h.Binary):
		return nil
	}
	err := o.tryRuntime(ctx, h.Binary)
	var refused refusal
	switch {
	case errors.As(err, &refused):
		return failure.Unusable{Cause: trialError(h.Binary, refused)}
	case err != nil:
		return notTried(h.Binary, err)
	}
	return nil
}

func notTried(program string, err error) error {
	return failure.Unusablef("trying the OCI runtime %s: %w", program, err)
}

// TryRuntime chooses the OCI runtime of pods without a class, and has it create and delete a container, as Trial says, also
// if it is runc or has passed before. The files are in dir while that lasts, from which programs must be executable.
func TryRuntime(ctx context.Context, o Options, dir string) (Choice, error) {
	var tried string
	var left error
	attempt := func(program string) error {
		tried = program
		l, err := o.Trial.attempt(ctx, program, dir)
		left = errors.Join(left, l)
		return err
	}
	chosen, err := o.choose(attempt)
	if err == nil && chosen.Path != tried {
		err = attempt(chosen.Path)
	}
	var refused refusal
	if errors.As(err, &refused) && chosen.Path != "" {
		err = trialError(chosen.Path, refused)
	}
	return chosen, errors.Join(err, left)
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

// tryOnce tries an OCI runtime, unless it has passed before, or was refused since the machine was booted.
func (o *Options) tryOnce(ctx context.Context, program string) error {
	err := o.outcome(program)
	if !errors.Is(err, errUntried) {
		return err
	}
	err = o.tryRuntime(ctx, program)
	var refused refusal
	if !errors.As(err, &refused) {
		return err
	}
	identity, err := o.identityOf(program)
	if err != nil {
		return err
	}
	file := filepath.Join(o.State, trialsFile)
	all := readTrials(file)
	all[program] = identity + refusedFor + string(refused)
	if err := os.MkdirAll(o.State, 0o711); err != nil {
		return err
	}
	return cmp.Or(writeTrials(file, all), error(refused))
}

// errUntried says that nobody knows whether a program works.
var errUntried = errors.New("it has not been tried on this machine")

// refusedFor is between the identity of a program and its refusal.
const refusedFor = ": "

// outcome returns what is known of the trial of a program: that it has passed, its refusal, or errUntried.
func (o *Options) outcome(program string) error {
	identity, err := o.identityOf(program)
	if err != nil {
		return err
	}
	if readTrials(filepath.Join(o.Root, trialsFile))[program] == identity {
		return nil
	}
	if cause, ok := strings.CutPrefix(readTrials(filepath.Join(o.State, trialsFile))[program], identity+refusedFor); ok {
		return refusal(cause)
	}
	return errUntried
}

// tryRuntime tries one OCI runtime, unless it has passed before.
func (o *Options) tryRuntime(ctx context.Context, program string) error {
	identity, err := o.identityOf(program)
	if err != nil {
		return err
	}
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
	return writeTrials(file, passed)
}

// identityOf is different for another file, after every change of it, and on another machine.
func (o *Options) identityOf(program string) (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(program, &st); err != nil {
		return "", fmt.Errorf("looking at the program: %w", err)
	}
	return fmt.Sprintf("%d:%d %d %d.%d on %s", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, o.Trial.Machine), nil
}

// readTrials returns the identities of the programs that work, or with their refusals those of programs that do not, by
// path. Without a file that can be read they are tried again.
func readTrials(file string) map[string]string {
	all := map[string]string{}
	if data, err := os.ReadFile(file); err != nil || json.Unmarshal(data, &all) != nil || all == nil {
		return map[string]string{}
	}
	return all
}

func writeTrials(file string, all map[string]string) error {
	data, _ := json.MarshalIndent(all, "", "\t") // texts
	return atomicfile.Write(file, append(data, '\n'), 0o600)
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
func trialError(program string, cause refusal) error {
	err := fmt.Errorf("the OCI runtime %w", cannotCreate(program, cause))
	if isRunc(program) {
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
