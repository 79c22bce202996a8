package server

import (
	"fmt"
	"log/slog"

	"github.com/containerd/containerd/v2/core/mount"
)

// sweepMounts makes dir the directory for containerd's temporary mounts, with which it unpacks
// layers, and removes those that a killed process has left. It is on the file system of the
// layers, as containerd's own is: an error names a file below it. Only the holder of the lock may
// call it.
func sweepMounts(dir string, log *slog.Logger) error {
	if err := mount.SetTempMountLocation(dir); err != nil {
		return fmt.Errorf("making the directory for containerd's mounts: %w", err)
	}
	warnings, err := mount.CleanupTempMounts(0)
	if err != nil {
		return fmt.Errorf("looking for mounts of earlier runs: %w", err)
	}
	for _, w := range warnings {
		log.Warn("could not remove a mount of an earlier run", "error", w)
	}
	return nil
}
