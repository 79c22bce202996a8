package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runtime/shim/attach"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// runLogger copies the output of one container of a third-party shim, which started this
// process with the pipes as descriptors 3 and 4, to the log file that the URI names.
// Descriptor 5 tells that shim that it is ready (core/runtime/v2/logging).
func runLogger(uri string) error {
	// The shim sends it when the container has ended; the output ends by itself.
	signal.Ignore(syscall.SIGTERM)
	out, ok := protocol.ParseOutput(uri)
	if !ok {
		return fmt.Errorf("starting the logger: %q is not an output URI of runonce", uri)
	}
	w, err := out.OpenLog()
	if err != nil {
		return err
	}
	if err := os.WriteFile(out.LoggingPath(), nil, 0o600); err != nil {
		return errors.Join(fmt.Errorf("starting the logger: %w", err), w.Close())
	}
	if out.RunFile != "" {
		go func() { _ = flock.FollowRun(out.RunFile, cleanAfterRun) }() // else the next run does it
	}
	var attached *attach.Server
	if out.AttachPath != "" {
		var in *attach.Input
		if stdin := os.NewFile(6, "stdin"); out.Input {
			in = &attach.Input{Writer: stdin}
			if out.InputOnce {
				in.End = func() { _ = stdin.Close() }
			}
		}
		if attached, err = attach.Listen(out.AttachPath, in); err != nil {
			return errors.Join(fmt.Errorf("starting the logger: %w", err), w.Close())
		}
	}
	ready := os.NewFile(5, "ready")
	if _, err := ready.Write([]byte{0}); err != nil {
		return errors.Join(err, w.Close())
	}
	_ = ready.Close()
	var copies sync.WaitGroup
	var errs [2]error
	copies.Go(func() { errs[0] = w.Copy("stdout", attached.Tee(os.NewFile(3, "stdout"), attach.Stdout)) })
	copies.Go(func() { errs[1] = w.Copy("stderr", attached.Tee(os.NewFile(4, "stderr"), attach.Stderr)) })
	copies.Wait()
	return errors.Join(errs[0], errs[1], w.Close(), attached.Close(), os.Remove(out.LoggingPath()))
}

// cleanAfterRun runs a command that outlives this logger.
func cleanAfterRun(command []string, inherits *os.File) error {
	c := exec.Cmd{
		Path: command[0], Args: command, Env: []string{"PATH=" + os.Getenv("PATH")}, ExtraFiles: []*os.File{inherits},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	return c.Run()
}
