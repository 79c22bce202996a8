package enginetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/engine"
)

// Files opens a directory of the container in Dir, which is empty at first.
func (e *Engine) Files(_ context.Context, id string, _ bool) (engine.Files, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.find(id) == nil {
		return engine.Files{}, fmt.Errorf("opening the files of container %q: %w", id, engine.ErrNotFound)
	}
	dir := filepath.Join(e.Dir, id)
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		return engine.Files{}, err
	}
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return engine.Files{}, err
	}
	return engine.Files{Root: root, Close: root.Close}, nil
}
