package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// diskSize is that of the file system for images, snapshots and records. The file is sparse.
const diskSize = 4 << 30

// workspace is where all variants keep their files: as on most machines, what ends with a
// reboot is on a tmpfs, and the rest on a disk. The file system on it is new, since one on
// which many files were just deleted can be slow.
type workspace struct {
	base, disk, state string
	note              string // for the report
	lock              *os.File
}

// openWorkspace makes the directories: file systems of the benchmark's own in base, or plain
// directories in dir, unless it is empty.
func openWorkspace(ctx context.Context, base, dir string) (w *workspace, err error) {
	w = &workspace{base: base, note: "/run on a tmpfs, everything else on a new ext4 file system with a journal, on a loop device"}
	if dir != "" {
		w.base, w.note = filepath.Join(dir, "runonce-bench"), "all files in "+dir+", /run on a tmpfs"
	}
	// As on most machines, and where containerd's shims keep the state of runc.
	if err := mountTmpfs("/run"); err != nil {
		return nil, err
	}
	w.disk, w.state = filepath.Join(w.base, "disk"), "/run/runonce-bench"
	if dir != "" {
		w.state = filepath.Join(w.base, "state")
	}
	for _, d := range []string{w.disk, w.state} {
		// Root in a user namespace needs access to the directories above its own.
		if err := os.MkdirAll(d, 0o711); err != nil {
			return nil, fmt.Errorf("making the benchmark's directories: %w", err)
		}
	}
	if w.lock, err = os.Open(w.base); err != nil {
		return nil, fmt.Errorf("locking %s: %w", w.base, err)
	}
	if err := unix.Flock(int(w.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s, which another benchmark uses: %w", w.base, err), w.lock.Close())
	}
	if dir != "" {
		return w, nil
	}
	if err := w.mountDisk(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "bench: using a tmpfs for everything: %v\n", err)
		w.note = "everything on a tmpfs, as no loop device could be used"
		return w, mountTmpfs(w.disk)
	}
	return w, nil
}

func mountTmpfs(dir string) error {
	if err := unix.Mount("runonce-bench", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", dir, err)
	}
	return nil
}

// mountDisk mounts a new file system on a loop device. Its file is already deleted when it
// returns, so that it disappears with the last process that uses it.
func (w *workspace) mountDisk(ctx context.Context) (err error) {
	file := filepath.Join(w.base, "disk.img")
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("making the file of the loop device: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return fmt.Errorf("making the file of the loop device: %w", err)
	}
	// Nothing is left to initialize in the background.
	if err := command(ctx, nil, "mkfs.ext4", "-q", "-F", "-N", "200000", "-E", "lazy_itable_init=0,lazy_journal_init=0", file); err != nil {
		return err
	}
	return command(ctx, nil, "mount", "-o", "loop", file, w.disk)
}

// close unmounts and removes everything.
func (w *workspace) close() error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.base))
	if err != nil {
		return fmt.Errorf("reading the mounts: %w", err)
	}
	for _, m := range slices.Backward(mounts) {
		path := m.Mountpoint
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	return errors.Join(os.RemoveAll(w.base), w.lock.Close())
}
