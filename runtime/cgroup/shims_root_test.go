package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// adopted starts a process, has the tree adopt it for the pod, and checks that it is in the cgroup in every hierarchy.
func adopted(t *testing.T, tree Tree, pod *v1.Pod, in location) (pid string) {
	t.Helper()
	pid = sleeper(t)
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = tree.AdoptShim(t.Context(), pod.UID, n)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range tree.hierarchies() {
		data, err := os.ReadFile(filepath.Join(root, in.path, "cgroup.procs"))
		if err != nil || !strings.Contains("\n"+string(data), "\n"+pid+"\n") {
			t.Errorf("%s in %s has %q, %v, not the process %s", in.path, root, data, err, pid)
		}
	}
	return pid
}

// end kills a process, which may take a moment.
func end(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = unix.Kill(n, unix.SIGKILL)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestAdoptShim(t *testing.T) {
	const parent = "/runonce-test-shims"
	tests := []struct {
		name string
		tree func(*testing.T, string) Tree
		want location
	}{
		{"cgroupfs", hostTree, location{path: parent + "/shims"}},
		{"systemd", sliceTree, location{path: "/runonce_test_shims.slice/runonce_test_shims-shims.scope"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := tt.tree(t, parent)
			first, last := testPod("first", nil, nil), testPod("last", list("1", "1Gi"), list("1", "1Gi"))
			if _, err := tree.Ensure(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			one := adopted(t, tree, first, tt.want)
			if _, err := tree.Ensure(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			two := adopted(t, tree, last, tt.want)
			if err := tree.Remove(t.Context(), first); err != nil || !isAlive(one) || !isAlive(two) {
				t.Errorf("after the first pod: %v, %v, %v", err, isAlive(one), isAlive(two))
			}
			// Those of the last one may still be about to end.
			var wg sync.WaitGroup
			defer wg.Wait()
			end(t, one)
			wg.Go(func() { end(t, two) })
			if err := tree.Remove(t.Context(), last); err != nil {
				t.Errorf("after the last pod: %v", err)
			}
		})
	}
}

// TestShimThatStays: a shim that does not end in time is killed when there are no pods any more.
func TestShimThatStays(t *testing.T) {
	tree := hostTree(t, "/runonce-test-stays")
	pod := testPod("last", nil, nil)
	if _, err := tree.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	shim := adopted(t, tree, pod, location{path: "/runonce-test-stays/shims"})
	if err := tree.Remove(t.Context(), pod); err != nil || isAlive(shim) {
		t.Errorf("%v; it is alive: %v", err, isAlive(shim))
	}
	if _, err := os.Stat(filepath.Join(tree.dirs["cpu"], "runonce-test-stays")); err == nil {
		t.Error("the cgroup of the pods is still there")
	}
}

// TestShimInOneHierarchy: who moved it was killed meanwhile. The last pod does not go without it.
func TestShimInOneHierarchy(t *testing.T) {
	tree := hostTree(t, "/runonce-test-half")
	pod := testPod("last", nil, nil)
	if _, err := tree.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	const at = "/runonce-test-half/shims"
	if err := tree.createLeaf(at); err != nil {
		t.Fatal(err)
	}
	pid := sleeper(t)
	first := tree.hierarchies()[0]
	if err := os.WriteFile(filepath.Join(first, at, "cgroup.procs"), []byte(pid), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(t.Context(), pod); err != nil || isAlive(pid) {
		t.Errorf("%v; it is alive: %v", err, isAlive(pid))
	}
	for _, root := range tree.hierarchies() {
		if _, err := os.Stat(filepath.Join(root, "runonce-test-half")); err == nil {
			t.Errorf("the cgroup of the pods is still in %s", root)
		}
	}
}

// TestAdoptShimsOfBothDrivers: the shim of a pod is beside the pod, and so goes with the last one there.
func TestAdoptShimsOfBothDrivers(t *testing.T) {
	const parent = "/runonce-test-both"
	tree := sliceTree(t, parent)
	slices, files := testPod("slices", nil, nil), testPod("files", nil, nil)
	asFiles := tree
	asFiles.systemd = false
	_, err := tree.Ensure(t.Context(), slices)
	if err == nil {
		_, err = asFiles.Ensure(t.Context(), files)
	}
	if err != nil {
		t.Fatal(err)
	}
	one := adopted(t, asFiles, slices, location{path: "/runonce_test_both.slice/runonce_test_both-shims.scope"})
	two := adopted(t, tree, files, location{path: parent + "/shims"})
	for pod, pid := range map[*v1.Pod]string{slices: one, files: two} {
		end(t, pid)
		if err := tree.Remove(t.Context(), pod); err != nil {
			t.Error(err)
		}
	}
}

// TestAdoptShimsMeanwhile: other pods, and with them the cgroup of the shims, come and go.
func TestAdoptShimsMeanwhile(t *testing.T) {
	tree := hostTree(t, "/runonce-test-meanwhile")
	var wg sync.WaitGroup
	for _, uid := range []string{"a", "b", "c"} {
		wg.Go(func() {
			pod := testPod(uid, nil, nil)
			for range 10 {
				if _, err := tree.Ensure(t.Context(), pod); err != nil {
					t.Errorf("Ensure: %v", err)
				}
				pid := sleeper(t)
				n, err := strconv.Atoi(pid)
				if err != nil {
					t.Error(err)
				}
				if err := tree.AdoptShim(t.Context(), pod.UID, n); err != nil {
					t.Error(err)
				}
				end(t, pid)
				if err := tree.Remove(t.Context(), pod); err != nil {
					t.Errorf("Remove: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// TestAdoptShimIntoNew: another pod has just made the cgroup of the shims.
func TestAdoptShimIntoNew(t *testing.T) {
	tree, pod := hostTree(t, "/runonce-test-new"), testPod("a", nil, nil)
	if _, err := tree.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for _, root := range tree.hierarchies() {
		if err := os.Mkdir(filepath.Join(root, tree.Parent, "shims"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pid := sleeper(t)
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = tree.AdoptShim(t.Context(), pod.UID, n)
	}
	if err != nil {
		t.Error(err)
	}
	end(t, pid)
	if err := tree.Remove(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

// TestShimStays: it is an error, and no more, if the process cannot be moved.
func TestShimStays(t *testing.T) {
	t.Parallel()
	tree := Tree{Parent: "/none", dirs: map[string]string{"cpu": t.TempDir()}, made: &sync.Map{}}
	if err := tree.AdoptShim(t.Context(), "a", os.Getpid()); err == nil {
		t.Error("no error without cgroups")
	}
}
