// Package disk makes disks for tests, which lose what was not written to them when their power is cut.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// Types are the file systems of which the tests cut the power.
func Types() []string { return []string{"ext4", "xfs"} }

// size is the smallest for all file systems. The file has holes.
const size = 300 << 20

// Disk is a file with a file system, which is mounted.
type Disk struct {
	file, dir, kind string
}

// Make makes a disk of a type in the file, and mounts it on the directory.
func Make(ctx context.Context, file, dir, kind string) (Disk, error) {
	d := Disk{file, dir, kind}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return d, err
	}
	return d, errors.Join(os.Truncate(file, size), run(ctx, "mkfs."+kind, "-q", file), d.mount(ctx))
}

func (d Disk) mount(ctx context.Context) error {
	options := "loop"
	if d.kind == "xfs" {
		options += ",nouuid" // a copy may be mounted while somebody has the other one open
	}
	return run(ctx, "mount", "-t", d.kind, "-o", options, d.file, d.dir)
}

// CutPower leaves what is on the disk. From then on nothing is written to it. The caller unmounts it.
func (d Disk) CutPower() error {
	// EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH, and XFS_IOC_GOINGDOWN with XFS_FSOP_GOING_FLAGS_NOLOGFLUSH.
	const shutdown, withoutFlush = 0x8004587d, 2
	f, err := os.Open(d.dir)
	if err == nil {
		err = errors.Join(unix.IoctlSetPointerInt(int(f.Fd()), shutdown, withoutFlush), f.Close())
	}
	if err != nil {
		return fmt.Errorf("cutting the power of %s: %w", d.dir, err)
	}
	return nil
}

// Restore mounts a copy of the disk after its power was cut: the kernel would mount the file system that
// somebody may still use again, and that is of no use any more.
func (d Disk) Restore(ctx context.Context) error {
	next := d.file + ".new"
	d.settle(ctx)
	return errors.Join(run(ctx, "cp", "--sparse=always", d.file, next), os.Rename(next, d.file), d.mount(ctx))
}

// settleTimeout is how long somebody may still use a disk whose power was cut.
const settleTimeout = 5 * time.Second

// settle waits until nobody uses the disk: writes that were under way when the power was cut, or that its last user's end
// makes, would tear a copy. Somebody who goes on using it keeps nobody waiting for ever.
func (d Disk) settle(ctx context.Context) {
	for deadline := time.Now().Add(settleTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if out, err := exec.CommandContext(ctx, "losetup", "--associated", d.file).Output(); err != nil || len(out) == 0 {
			return
		}
	}
}

func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", name, args, err, out)
	}
	return nil
}
