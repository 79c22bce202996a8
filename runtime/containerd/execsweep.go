package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/runonce/runonce/internal/flock"
)

// captureName is the FIFO in the directory of a command's output.
const captureName = "out"

// execDir has a directory for each command that runs in a container.
func (e *Engine) execDir() string { return filepath.Join(e.o.State, "exec") }

// sweepCaptures removes the FIFOs of killed processes: those that nobody reads. It leaves that to
// the next process while one is being made.
func sweepCaptures(parent string) error {
	lock, err := flock.Open(parent, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, fs.ErrNotExist) || err == nil && lock == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing the pipes of killed processes: %w", err)
	}
	defer func() { _ = lock.Close() }()
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("removing the pipes of killed processes: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		f, err := os.OpenFile(filepath.Join(dir, captureName), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			_ = f.Close()
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing the pipes of killed processes: %w", err)
		}
	}
	return nil
}
