package containerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFileLimit: the limit of open files of whoever starts a pod is neither its shim's nor its
// containers'.
func TestFileLimit(t *testing.T) {
	for _, which := range []string{"S", "H"} {
		t.Run(which, func(t *testing.T) {
			var own unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
				t.Fatal(err)
			}
			hard := min(own.Max, 524288)
			if exec.CommandContext(t.Context(), "sh", "-c", "ulimit -n 64; ulimit -n 524288").Run() == nil {
				hard = 524288
			} else if which == "H" {
				t.Skip("this process may not raise its limits") // root in a container has not that right
			}
			p := newTestDirs(t)
			if err := p.openWithBox(t).Close(); err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -$1 -n 64; exec "$0" trap`, self, which)
			cmd.Env = append(os.Environ(), helperEnv+"="+p.dir, helperEnv+"_ID=a")
			cmd.Stderr = os.Stderr
			if err := cmd.Run(); err != nil { // its input ends at once
				t.Fatal(err)
			}
			e := p.open(t, t.Context())
			defer func() { _ = e.Close() }()
			c, ok := find(t, e, "a")
			if !ok {
				t.Fatal("no container")
			}
			// Go programs, as both are, raise their soft limit themselves, nearly to the hard one.
			if soft, _ := fileLimits(t, shimProcess(t, p)); soft < hard-1 {
				t.Errorf("the shim's soft limit is %d, want %d", soft, hard)
			}
			if soft, h := fileLimits(t, c.PID); soft < 1024 || h != hard {
				t.Errorf("the container's limits are %d and %d", soft, h)
			}
			if err := e.Remove(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		})
	}
}

// fileLimits returns the soft and the hard limit of open files of a process.
func fileLimits(t *testing.T, pid int) (soft, hard uint64) {
	t.Helper()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(limits)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if _, err := fmt.Sscan(rest, &soft, &hard); err != nil {
				t.Fatal(err)
			}
			return soft, hard
		}
	}
	t.Fatal("no limit of open files")
	return 0, 0
}
