package e2e

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/hack/vm/job"
)

// underPressure are pods of all kinds, by which the rows of a run show what the node's condition rejects.
func underPressure(t *testing.T) (dir string) {
	t.Helper()
	critical := strings.Replace(pod("critical", "Always", "sleep"), "spec:\n", "spec:\n  priorityClassName: system-node-critical\n", 1)
	burstable := strings.Replace(pod("burstable", "Always", "sleep"), "args:", "resources: {requests: {memory: 1Mi}}, args:", 1)
	return directory(t, pod("besteffort", "Always", "sleep"), burstable, critical)
}

// TestDiskPressure: while the disk is nearly full, only critical pods start. What runs goes on.
func TestDiskPressure(t *testing.T) {
	b, _ := newBoxOnDisk(t, "", "ext4")
	before := directory(t, pod("before", "Always", "sleep"))
	b.up(t, before, 0)
	dir := underPressure(t)
	ballast := filepath.Join(b.dir, "root", "ballast")
	if err := fill(ballast, func() (left int64, err error) {
		var fs unix.Statfs_t
		err = unix.Statfs(filepath.Dir(ballast), &fs)
		return int64(fs.Bavail)*fs.Bsize - int64(fs.Blocks)*fs.Bsize*8/100, err
	}); err != nil {
		t.Fatal(err)
	}
	r := b.up(t, dir, 3)
	checkPressure(t, r, "DiskPressure", "besteffort Rejected Evicted", "burstable Rejected Evicted", "critical Running ")
	checkPressure(t, b.up(t, before, 0), "", "before Running ")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	checkPressure(t, b.up(t, dir, 0), "", "besteffort Running ", "burstable Running ", "critical Running ")
}

// TestMemoryPressure: while the machine is short of memory, pods start only if they request some, or are critical.
// It uses up the machine's memory.
func TestMemoryPressure(t *testing.T) {
	if os.Getenv(job.Machine) == "" {
		t.Skip("runs in the machines of make test-vm")
	}
	b := newBox(t, "")
	b.up(t, directory(t, pod("before", "Always", "sleep")), 0)
	dir := filepath.Join(b.dir, "ballast")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("ballast", dir, "tmpfs", 0, "size=100%"); err != nil {
		t.Fatal(err)
	}
	release := func() { _ = unix.Unmount(dir, unix.MNT_DETACH) } // with all that is in it
	t.Cleanup(release)
	if err := fill(filepath.Join(dir, "file"), func() (int64, error) {
		available, err := memoryAvailable()
		return available - 75<<20, err
	}); err != nil {
		t.Fatal(err)
	}
	r := b.up(t, underPressure(t), 3)
	release()
	checkPressure(t, r, "MemoryPressure", "besteffort Rejected Evicted", "burstable Running ", "critical Running ")
}

// fill makes the file longer until nothing is left.
func fill(path string, left func() (int64, error)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 1<<20); ; {
		n, err := left()
		if err != nil || n <= 0 {
			return err
		}
		if _, err := f.Write(block[:min(n, int64(len(block)))]); err != nil {
			return err
		}
	}
}

// memoryAvailable is how much memory the kernel can give to programs, in bytes.
func memoryAvailable() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo does not say how much memory is available")
}

// checkPressure checks the pods with their outcomes and reasons, and that each that was rejected names the condition.
func checkPressure(t *testing.T, r result, condition string, want ...string) {
	t.Helper()
	var got []string
	for _, row := range r.report.Results {
		got = append(got, row.Name+" "+row.Outcome+" "+row.Reason)
		if row.Outcome == "Rejected" && row.Message != "The node had condition: ["+condition+"]. " {
			t.Errorf("pod %s: %q", row.Name, row.Message)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("with %q: %q, want %q", condition, got, want)
	}
}
