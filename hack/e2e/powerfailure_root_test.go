package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// TestPowerFailure: what was running when the machine lost power runs again, from a file system
// that has only what was on disk.
func TestPowerFailure(t *testing.T) {
	b := newBox(t, "")
	disk, root := filepath.Join(b.dir, "disk"), filepath.Join(b.dir, "root")
	start := func() { command(t, "mount", "-o", "loop", disk, root) }
	command(t, "truncate", "--size=256M", disk)
	command(t, "mkfs.ext4", "-q", disk)
	if err := os.Mkdir(root, 0o711); err != nil {
		t.Fatal(err)
	}
	start()
	t.Cleanup(func() {
		b.run(t, "down", "--all")
		b.unmount(t)
	})
	dir := directory(t, pod("web", "Always", "sleep"))
	b.up(t, dir, 0)
	b.cutPower(t, root)
	start()
	b.up(t, dir, 0)
}

// cutPower leaves of a file system what is on disk, and of everything else nothing.
func (b *box) cutPower(t *testing.T, root string) {
	t.Helper()
	const shutdown, withoutFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN and EXT4_GOING_FLAGS_NOLOGFLUSH, linux/fs/ext4
	f, err := os.Open(root)
	if err == nil {
		err = errors.Join(unix.IoctlSetPointerInt(int(f.Fd()), shutdown, withoutFlush), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range b.processes(t) {
		number, _, _ := strings.Cut(p, " ")
		pid, err := strconv.Atoi(number)
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatalf("killing %s: %v", p, err)
		}
	}
	b.unmount(t)
	if err := os.RemoveAll(filepath.Join(b.dir, "state")); err != nil {
		t.Fatal(err)
	}
}

// unmount unmounts everything in the box. Processes that were killed may use it for a moment.
func (b *box) unmount(t *testing.T) {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(b.dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Backward(mounts) {
		if !eventually(func() bool { err = unix.Unmount(m.Mountpoint, 0); return !errors.Is(err, unix.EBUSY) }) || err != nil {
			t.Fatalf("unmounting %s: %v", m.Mountpoint, err)
		}
	}
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// TestUnsyncedLayers: layers of which a machine that went down may have lost files are unpacked again.
func TestUnsyncedLayers(t *testing.T) {
	b := newBox(t, "")
	mark := filepath.Join(b.dir, "root", "unsynced")
	synced := func() {
		t.Helper()
		if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("looking for the mark of layers that are not on disk: %v", err)
		}
	}
	dir := directory(t, pod("web", "Always", "sleep"))
	b.up(t, dir, 0)
	synced()
	if r := b.run(t, "down", "--all"); r.code != 0 {
		t.Fatalf("down --all: exit code %d\n%s", r.code, r.stderr)
	}

	lost := b.glob(t, "root/io.containerd.snapshotter.v1.*/snapshots/*/fs/bin/box")
	for _, path := range lost {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(mark, []byte("another boot"), 0o600); err != nil || len(lost) == 0 {
		t.Fatalf("%q: %v", lost, err)
	}
	if r := b.up(t, dir, 0); !strings.Contains(r.stderr, "unpacked again") {
		t.Errorf("no warning: %s", r.stderr)
	}
	synced()
}
