package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// insideVariable is set in the process of the test that has a cgroup namespace of its own.
const insideVariable = "RUNONCE_TEST_CGROUP_NAMESPACE"

// TestInContainer: pods get cgroups also in a container, whose root cgroup has its processes.
func TestInContainer(t *testing.T) {
	roottest.Require(t)
	if os.Getenv(insideVariable) != "" {
		inContainer(t)
		return
	}
	tree, err := Detect(Root)
	if err != nil {
		t.Fatal(err)
	}
	if !tree.V2 {
		t.Skip("on cgroup v1, cgroups have processes and children")
	}
	if err := tree.delegate(Root); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(Root, "runonce-test-container")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeAll(dir); err != nil {
			t.Error(err)
		}
	})
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInContainer$", "-test.v")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd()), Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func inContainer(t *testing.T) {
	t.Helper()
	if err := unix.Unmount(Root, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("cgroup2", Root, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	tree := hostTree(t, "/runonce-test")
	pod := testPod("a", list("100m", "64Mi"), list("100m", "64Mi"))
	if _, err := tree.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	limit, err := os.ReadFile(filepath.Join(Root, tree.locate(pod).path, "memory.max"))
	if got := strings.TrimSpace(string(limit)); got != "67108864" {
		t.Errorf("memory.max is %q, %v", got, err)
	}
	if err := tree.Remove(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if own, err := os.ReadFile("/proc/self/cgroup"); string(own) != "0::/init\n" {
		t.Errorf("this process is in %q, %v", own, err)
	}
}
