package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/containerd/v2/core/runtime/v2/logging"

	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/shim/exitrecord"
)

// runLogger copies the output of one container of a third-party shim, which started this
// process with the pipes as descriptors 3 and 4, to the log file named in the arguments.
func runLogger() {
	logging.Run(func(_ context.Context, c *logging.Config, ready func() error) error {
		if len(os.Args) < 3 {
			return errors.New("starting the logger: no output given")
		}
		out, ok := exitrecord.ParseOutput(os.Args[2])
		if !ok {
			return fmt.Errorf("starting the logger: %q is not an output URI of runonce", os.Args[2])
		}
		return copyLog(out, c, ready)
	})
}

func copyLog(out exitrecord.Output, c *logging.Config, ready func() error) error {
	w, err := logs.OpenWriter(out.LogPath)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out.LoggingPath(), nil, 0o600); err != nil {
		return errors.Join(fmt.Errorf("starting the logger: %w", err), w.Close())
	}
	if err := ready(); err != nil {
		return errors.Join(err, w.Close())
	}
	var copies sync.WaitGroup
	var errs [2]error
	copies.Go(func() { errs[0] = w.Copy("stdout", c.Stdout) })
	copies.Go(func() { errs[1] = w.Copy("stderr", c.Stderr) })
	copies.Wait()
	return errors.Join(errs[0], errs[1], w.Close(), os.Remove(out.LoggingPath()))
}
