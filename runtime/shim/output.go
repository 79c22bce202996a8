package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/runonce/runonce/runtime/logs"
)

// output copies what a container writes to its log file. The runtime's side writes to two
// FIFOs in the bundle, which go with it.
type output struct {
	stdout, stderr string // paths of the FIFOs; no stderr with a terminal, none without a log
	log            *logs.Writer
	held           []*os.File // write ends, which keep the FIFOs open until the runtime opens them
	done           chan struct{}
}

func newOutput(bundle, path string, terminal bool) (*output, error) {
	if path == "" {
		o := &output{done: make(chan struct{})}
		close(o.done)
		return o, nil
	}
	w, err := logs.OpenWriter(path)
	if err != nil {
		return nil, err
	}
	o := &output{log: w, done: make(chan struct{}), stdout: filepath.Join(bundle, "stdout")}
	var copies sync.WaitGroup
	if err = o.pipe(&copies, "stdout", o.stdout); err == nil && !terminal {
		o.stderr = filepath.Join(bundle, "stderr")
		err = o.pipe(&copies, "stderr", o.stderr)
	}
	go func() {
		copies.Wait()
		_ = w.Close()
		close(o.done)
	}()
	if err != nil {
		o.release()
		return nil, err
	}
	return o, nil
}

func (o *output) pipe(copies *sync.WaitGroup, stream, path string) error {
	if err := syscall.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making pipe %q: %w", path, err)
	}
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening pipe: %w", err)
	}
	w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return errors.Join(fmt.Errorf("opening pipe: %w", err), r.Close())
	}
	o.held = append(o.held, w)
	copies.Go(func() {
		defer func() { _ = r.Close() }()
		// A log that cannot be written must not stop the container.
		_ = o.log.Copy(stream, r)
	})
	return nil
}

// release lets the FIFOs end when their last writer closes them.
func (o *output) release() {
	for _, f := range o.held {
		_ = f.Close()
	}
	o.held = nil
}

// makeStdin makes the pipe for a container's input. The runtime's side opens both ends, so it
// stays open while the container runs.
func makeStdin(bundle string) (path string, err error) {
	path = filepath.Join(bundle, "stdin")
	if err := syscall.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("making pipe %q: %w", path, err)
	}
	return path, nil
}

// drain waits until everything is in the log file, at most for the time given.
func (o *output) drain(most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-o.done:
	case <-t.C:
	}
}
