package containerd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// holdShim does what unpackShim does, and nobody removes the program until release is called or this
// process ends. Unless another process holds one, it first removes those of other versions that no
// process runs and no known container was created with: used returns the paths of these.
func holdShim(bin string, used func() (map[string]bool, error), log *slog.Logger) (path string, release func() error, err error) {
	return hold(bin, unpackShim, used, log)
}

func hold(bin string, unpack func(string) (string, error), used func() (map[string]bool, error), log *slog.Logger) (path string, release func() error, err error) {
	if path, err = unpack(bin); err != nil {
		return "", nil, err
	}
	alone, err := flock.Open(bin, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && alone != nil {
		err = errors.Join(sweepShims(bin, path, used), alone.Close())
	}
	if err != nil {
		log.Warn("could not remove the shims of other versions", "error", err)
	}
	held, err := flock.Open(bin, unix.LOCK_SH)
	if err != nil {
		return "", nil, fmt.Errorf("holding the shim: %w", err)
	}
	if path, err = unpack(bin); err != nil { // again, if it was removed meanwhile
		return "", nil, errors.Join(err, held.Close())
	}
	return path, held.Close, nil
}

// sweepShims removes the programs that nobody needs, except our own.
func sweepShims(bin, own string, used func() (map[string]bool, error)) error {
	entries, err := os.ReadDir(bin)
	if err != nil || len(entries) < 2 {
		return err
	}
	running := runningPrograms()
	recorded, err := used()
	if err != nil {
		return err
	}
	var failed []error
	for _, e := range entries {
		path := filepath.Join(bin, e.Name(), protocol.Program)
		if path != own && !running[path] && !recorded[path] && e.IsDir() && len(e.Name()) == 64 {
			failed = append(failed, os.RemoveAll(filepath.Dir(path)))
		}
	}
	return errors.Join(failed...)
}

// runningPrograms returns the paths of all programs that run on this machine.
func runningPrograms() map[string]bool {
	all := map[string]bool{}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return all
	}
	for _, l := range links {
		// Processes end meanwhile, and kernel threads have no program.
		if path, err := os.Readlink(l); err == nil {
			all[strings.TrimSuffix(path, " (deleted)")] = true
		}
	}
	return all
}
