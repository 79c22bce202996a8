package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/machine"
	"github.com/runonce/runonce/internal/testing/disk"
)

// diskSize is enough for what a round needs.
const diskSize = 96 << 20

// smallDisk mounts a file system in memory for the root.
func smallDisk(_ context.Context, r *round) error {
	root, err := r.emptyRoot()
	if err != nil {
		return err
	}
	return unix.Mount("chaos", root, "tmpfs", 0, "mode=711,size="+strconv.Itoa(diskSize))
}

// loopDisk mounts a file system in a file for the root.
func loopDisk(ctx context.Context, r *round) error {
	root, err := r.emptyRoot()
	if err == nil {
		r.disk, err = disk.Make(ctx, filepath.Join(r.dir, "disk"), root, "ext4")
	}
	return err
}

// emptyRoot returns the root, which is empty.
func (r *round) emptyRoot() (string, error) {
	root := filepath.Join(r.dir, "root")
	return root, errors.Join(os.RemoveAll(root), os.Mkdir(root, 0o711))
}

// unmount unmounts everything of the embedded engine, and the root. Processes that were killed may
// use it for a while, or mount namespaces that somebody has made meanwhile.
func (r *round) unmount() error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(r.dir))
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.Mountpoint, filepath.Join(r.dir, "d")+"/") {
			continue // of a daemon
		}
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmounting %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}

// fillDisk fills the disk for a while, while runs are at work.
func fillDisk(ctx context.Context, r *round) error {
	r.killed[""] = true // exits and lines of logs may be lost
	r.commands = nil
	for _, dir := range r.dirs {
		c, err := r.start(ctx, append(r.runArgs(dir), "--timeout", "20s")...)
		if err != nil {
			return err
		}
		r.commands = append(r.commands, c)
	}
	pause(ctx, time.Duration(r.IntN(1200))*time.Millisecond)
	path := filepath.Join(r.dir, "root", "ballast")
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &fs); err != nil {
		return err
	}
	left := r.IntN(64) << 10
	free := int(fs.Bavail)*int(fs.Bsize) - left
	if err := os.WriteFile(path, nil, 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for block := make([]byte, 64<<10); free > 0; free -= len(block) {
		if _, err := f.Write(block[:min(len(block), free)]); err != nil {
			break // full
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	r.breaks("a full disk for a moment", strconv.Itoa(left>>10)+" KiB left")
	pause(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
	return errors.Join(os.Remove(path), r.endCommands(ctx))
}

// cutPower leaves of the root what is on its disk, and of everything else nothing.
func cutPower(ctx context.Context, r *round) error {
	r.killed[""] = true
	r.commands = nil
	for _, dir := range r.dirs {
		c, err := r.start(ctx, r.runArgs(dir)...)
		if err != nil {
			return err
		}
		r.commands = append(r.commands, c)
	}
	pause(ctx, time.Duration(r.IntN(2500))*time.Millisecond)
	if err := r.disk.CutPower(); err != nil {
		return err
	}
	for _, c := range r.commands {
		if err := machine.KillGroup(c.cmd.Process.Pid); err != nil {
			return err
		}
		c.wait()
	}
	if err := r.killAll(); err != nil {
		return err
	}
	r.breaks("a power failure", "machine")
	if err := r.loseState(); err != nil {
		return err
	}
	return errors.Join(r.disk.Restore(ctx), r.reboot())
}

// loseState removes what a reboot does. Plugins that were killed may still be in their last system call, and
// make a file or a mount.
func (r *round) loseState() error {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := errors.Join(r.unmount(), os.RemoveAll(filepath.Join(r.dir, "state")))
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// reboot has the next run notice that the machine was off: its kernel is still the same, by which a run
// tells whether layers that were not completely on disk are in its memory.
func (r *round) reboot() error {
	unsynced := filepath.Join(r.dir, "root", "unsynced")
	if _, err := os.Stat(unsynced); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return os.WriteFile(unsynced, []byte("another boot"), 0o600)
}

// killAll kills all processes of the installation.
func (r *round) killAll() error {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		all, err := r.installation().Processes()
		if err != nil || len(all) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("killed, but still there: %q", all)
		}
		for _, p := range all {
			id, _, _ := strings.Cut(p, " ")
			pid, err := strconv.Atoi(id)
			if err == nil {
				err = machine.KillGroup(pid)
			}
			if err != nil {
				return fmt.Errorf("killing %s: %w", p, err)
			}
		}
	}
}
