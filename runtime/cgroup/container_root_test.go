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

// TestInContainer: pods get cgroups also in a container, whose cgroup has its processes, whether or not that is
// the root for the container.
func TestInContainer(t *testing.T) {
	roottest.Require(t)
	if base, ok := os.LookupEnv(insideVariable); ok {
		inContainer(t, base)
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
	for name, c := range map[string]struct {
		namespaces uintptr
		base       string
	}{
		"own cgroup namespace":   {unix.CLONE_NEWCGROUP, ""},
		"the machine's, as root": {0, "/runonce-test-container"},
	} {
		t.Run(name, func(t *testing.T) {
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
			cmd.Env = append(os.Environ(), insideVariable+"="+c.base)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				UseCgroupFD: true, CgroupFD: int(f.Fd()), Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS | c.namespaces,
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func inContainer(t *testing.T, base string) {
	t.Helper()
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(Root, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("cgroup2", Root, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	pod := testPod("a", list("100m", "64Mi"), list("100m", "64Mi"))
	for range 2 { // the second time, this process is in another cgroup
		tree := hostTree(t, "/runonce-test")
		at := tree.locate(pod).path
		if want := base + "/runonce-test/poda"; at != want {
			t.Errorf("the pod is in %s, want %s", at, want)
		}
		if _, err := tree.Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		limit, err := os.ReadFile(filepath.Join(Root, at, "memory.max"))
		if got := strings.TrimSpace(string(limit)); got != "67108864" {
			t.Errorf("memory.max is %q, %v", got, err)
		}
		if err := tree.Remove(t.Context(), pod); err != nil {
			t.Error(err)
		}
		if left, err := os.Stat(filepath.Join(Root, base, "runonce-test")); err == nil {
			t.Errorf("%s is left", left.Name())
		}
		if own, err := os.ReadFile("/proc/self/cgroup"); string(own) != "0::"+base+"/init\n" {
			t.Errorf("this process is in %q, %v", own, err)
		}
	}
}
