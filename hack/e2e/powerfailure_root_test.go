package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/disk"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestPowerFailure: what was running when the machine lost power runs again, and what had ended has
// ended, from a file system that has only what was on disk.
func TestPowerFailure(t *testing.T) {
	for _, kind := range disk.Types() {
		t.Run(kind, func(t *testing.T) { powerFailure(t, "", kind) })
	}
}

// TestPowerFailureWithDaemon: the daemon writes nothing to the disk that has runonce's root.
func TestPowerFailureWithDaemon(t *testing.T) {
	for _, kind := range disk.Types() {
		t.Run(kind, func(t *testing.T) {
			roottest.Require(t)
			powerFailure(t, daemon.Serve(t, daemon.Current).Socket, kind)
		})
	}
}

func powerFailure(t *testing.T, address, kind string) {
	t.Helper()
	b, restore := newBoxOnDisk(t, address, kind)
	dir := directory(t, pod("web", "Always", "sleep"), pod("job", "Never", "exit", "0"), pod("bad", "Never", "exit", "3"))
	run := func() {
		t.Helper()
		r := b.up(t, dir, 1, "--until", "completed")
		if diff := cmp.Diff([]string{"web=Ready", "job=Succeeded", "bad=Failed"}, r.report.outcomes()); diff != "" {
			t.Fatalf("outcomes (-want +got):\n%s\n%s", diff, r.stderr)
		}
	}
	run()
	b.cutPower(t)
	restore()
	codes := map[string]int{}
	ps := b.run(t, "ps", "-o", "json")
	for _, p := range ps.report.Pods {
		for _, c := range p.Containers {
			if c.ExitCode != nil {
				codes[p.Name] = *c.ExitCode
			}
		}
	}
	if codes["job"] != 0 || codes["bad"] != 3 || len(codes) != 3 {
		t.Errorf("exit codes %v\n%s", codes, ps.stdout)
	}
	run()
	if logs := b.glob(t, "logs/*_job_*/main/*.log"); len(logs) != 1 {
		t.Errorf("what had succeeded has run again: %q", logs)
	}
}

// TestPowerFailureDuringUnpack: of the shim there is all on disk or nothing, as soon as it has its name.
func TestPowerFailureDuringUnpack(t *testing.T) {
	b, restore := newBoxOnDisk(t, "", "ext4")
	cmd := b.command(t, "run", b.upArgs(t, directory(t, pod("web", "Always", "sleep")))...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const pattern = "root/bin/*/runonce-shim"
	if !eventually(func() bool { return len(b.glob(t, pattern)) == 1 }) {
		t.Fatal("the shim is not unpacked")
	}
	// The names in the file system are on disk with any file that is.
	other, err := os.Create(filepath.Join(b.dir, "root", "other"))
	if err == nil {
		err = errors.Join(other.Sync(), other.Close(), cmd.Process.Kill())
	}
	if err != nil {
		t.Fatal(err)
	}
	b.cutPower(t)
	_ = cmd.Wait()
	restore()
	for _, path := range b.glob(t, pattern) {
		program, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(program)); sum != filepath.Base(filepath.Dir(path)) {
			t.Errorf("%s: a damaged program, with SHA-256 %s", path, sum)
		}
	}
}

// newBoxOnDisk returns a box whose root is on a disk of its own. restore gives it another one after a
// loss of power, with what was on the first.
func newBoxOnDisk(t *testing.T, address, kind string) (b *box, restore func()) {
	t.Helper()
	b = newBox(t, address)
	root := filepath.Join(b.dir, "root")
	if err := os.Mkdir(root, 0o711); err != nil {
		t.Fatal(err)
	}
	d, err := disk.Make(t.Context(), filepath.Join(b.dir, "disk"), root, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.run(t, "down", "--all")
		b.unmount(t)
	})
	b.disk = d
	return b, func() {
		t.Helper()
		if err := d.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// cutPower leaves of the root what is on disk, and of everything else nothing.
func (b *box) cutPower(t *testing.T) {
	t.Helper()
	if err := b.disk.CutPower(); err != nil {
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

// unmount unmounts everything in the box. Processes that were killed may use it for a while, or mount
// namespaces that somebody has made meanwhile.
func (b *box) unmount(t *testing.T) {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(b.dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Backward(mounts) {
		if m.Mountpoint == b.dir { // the box itself
			continue
		}
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			t.Fatalf("unmounting %s: %v", m.Mountpoint, err)
		}
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
	if r := b.up(t, dir, 0); !strings.Contains(r.stderr, "unpacking images again") {
		t.Errorf("no warning: %s", r.stderr)
	}
	synced()
}
