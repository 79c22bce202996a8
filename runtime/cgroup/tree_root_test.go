package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// hostTree returns the machine's tree with a parent of the test's own.
func hostTree(t *testing.T, parent string) Tree {
	t.Helper()
	roottest.Require(t)
	tree, err := Detect(Root)
	if err != nil {
		t.Fatal(err)
	}
	tree.Parent = parent
	leaveNothing(t, tree, parent)
	return tree
}

// leaveNothing fails a test that ends with the cgroup in any hierarchy.
func leaveNothing(t *testing.T, tree Tree, p string) {
	t.Helper()
	t.Cleanup(func() {
		for _, root := range tree.hierarchies() {
			if _, err := os.Stat(filepath.Join(root, p)); err == nil {
				t.Errorf("%s is left in %s", p, root)
				_ = removeAll(filepath.Join(root, p))
			}
		}
	})
}

func testPod(uid string, requests, limits v1.ResourceList) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits},
		}}},
	}
}

func withPodLevel(pod *v1.Pod, requests, limits v1.ResourceList) *v1.Pod {
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: requests, Limits: limits}
	return pod
}

func withOverhead(pod *v1.Pod, overhead v1.ResourceList) *v1.Pod {
	pod.Spec.Overhead = overhead
	return pod
}

func list(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func TestLimitPids(t *testing.T) {
	tree := hostTree(t, "/runonce-test-pids")
	pod := testPod("p", nil, nil)
	for limit, want := range map[int64]string{100: "100", -1: "max"} {
		if err := tree.LimitPids(limit); err != nil {
			t.Fatal(err)
		}
		path, err := tree.Ensure(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(tree.dirs["pids"], path, "pids.max"))
		if got := strings.TrimSpace(string(data)); err != nil || got != want {
			t.Errorf("limit %d: pids.max is %q, %v", limit, got, err)
		}
		if err := tree.Remove(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	without := Tree{dirs: map[string]string{}}
	if err := without.LimitPids(100); err == nil || !strings.Contains(err.Error(), "controller pids is not mounted") {
		t.Errorf("without the controller: %v", err)
	}
}

func TestEnsureAndRemoveOnThisMachine(t *testing.T) {
	tree := hostTree(t, "/runonce-test-ensure")
	tests := []struct {
		name string
		pod  *v1.Pod
		path string
		v1   map[string]string // controller/file: content
		v2   map[string]string
	}{
		{
			name: "guaranteed",
			pod:  testPod("g", list("500m", "64Mi"), list("500m", "64Mi")),
			path: "/runonce-test-ensure/podg",
			v1: map[string]string{
				"cpu/cpu.shares": "512", "cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000",
				"memory/memory.limit_in_bytes": "67108864",
			},
			v2: map[string]string{"cpu/cpu.weight": "59", "cpu/cpu.max": "50000 100000", "memory/memory.max": "67108864"},
		},
		{
			name: "limits of the pod as a whole, and its overhead",
			pod:  withOverhead(withPodLevel(testPod("l", nil, nil), list("500m", "64Mi"), list("1", "128Mi")), list("250m", "64Mi")),
			path: "/runonce-test-ensure/burstable/podl",
			v1:   map[string]string{"cpu/cpu.shares": "768", "cpu/cpu.cfs_quota_us": "125000", "memory/memory.limit_in_bytes": "201326592"},
			v2:   map[string]string{"cpu/cpu.max": "125000 100000", "memory/memory.max": "201326592"},
		},
		{
			name: "burstable without limits",
			pod:  testPod("b", list("1", ""), nil),
			path: "/runonce-test-ensure/burstable/podb",
			v1:   map[string]string{"cpu/cpu.shares": "1024", "cpu/cpu.cfs_quota_us": "-1"},
			v2:   map[string]string{"cpu/cpu.weight": "100", "cpu/cpu.max": "max 100000", "memory/memory.max": "max"},
		},
		{
			name: "best effort",
			pod:  testPod("e", nil, nil),
			path: "/runonce-test-ensure/besteffort/pode",
			v1:   map[string]string{"cpu/cpu.shares": "2"},
			v2:   map[string]string{"cpu/cpu.weight": "1"},
		},
	}
	for _, tt := range tests {
		for range 2 { // safe to repeat
			got, err := tree.Ensure(t.Context(), tt.pod)
			if err != nil || got != tt.path {
				t.Fatalf("%s: Ensure = %q, %v, want %q", tt.name, got, err, tt.path)
			}
		}
		want := tt.v1
		if tree.V2 {
			want = tt.v2
		}
		for file, value := range want {
			controller, name, _ := strings.Cut(file, "/")
			data, err := os.ReadFile(filepath.Join(tree.dirs[controller], tt.path, name))
			if got := strings.TrimSpace(string(data)); err != nil || got != value {
				t.Errorf("%s: %s = %q, %v, want %q", tt.name, file, got, err, value)
			}
		}
	}
	for _, tt := range tests {
		// Cgroups that a container left behind must be no problem.
		for _, root := range tree.hierarchies() {
			if err := os.MkdirAll(filepath.Join(root, tt.path, "left/over"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := tree.Remove(t.Context(), tt.pod); err != nil {
				t.Errorf("%s: Remove: %v", tt.name, err)
			}
		}
	}
}

// A process can enter a container's cgroup below the pod's in every hierarchy: on v1 the
// cpuset needs CPUs for that.
func TestProcessEntersBelowThePod(t *testing.T) {
	tree := hostTree(t, "/runonce-test-enter")
	pod := testPod("enter", list("100m", "64Mi"), list("100m", "64Mi"))
	p, err := tree.Ensure(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Remove(t.Context(), pod); err != nil {
			t.Error(err)
		}
	})
	cmd := sleeper(t)
	for _, root := range tree.hierarchies() {
		dir := filepath.Join(root, p, "container")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if root == tree.dirs["cpuset"] && !tree.V2 {
			if err := inheritCPUSet(dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeFile(filepath.Join(dir, "cgroup.procs"), cmd); err != nil {
			t.Errorf("entering %s: %v", dir, err)
		}
	}
	if err := tree.Kill(t.Context(), pod, "another"); err != nil || !isAlive(cmd) {
		t.Errorf("killing another container: %v", err)
	}
	if err := tree.Kill(t.Context(), pod, "container"); err != nil || isAlive(cmd) {
		t.Errorf("killing the container: %v", err)
	}
}

// TestRemoveKills: what still runs in a pod's cgroup does not outlive it, frozen or not, and nothing
// else is killed.
func TestRemoveKills(t *testing.T) {
	tree := hostTree(t, "/runonce-test-kill")
	pod, other := testPod("kill", nil, nil), testPod("other", nil, nil)
	enter := func(pod *v1.Pod) (pid string) {
		p, err := tree.Ensure(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		pid = sleeper(t)
		for _, root := range tree.hierarchies() {
			dir := filepath.Join(root, p, "container")
			err := os.Mkdir(dir, 0o755)
			if err == nil && root == tree.dirs["cpuset"] && !tree.V2 {
				err = inheritCPUSet(dir)
			}
			if err == nil {
				err = writeFile(filepath.Join(dir, "cgroup.procs"), pid)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = writeFile(filepath.Join(dir, "freezer.state"), "FROZEN")
		}
		return pid
	}
	mine, others := enter(pod), enter(other)
	if err := tree.Remove(t.Context(), pod); err != nil || isAlive(mine) || !isAlive(others) {
		t.Errorf("%v, %v, %v", err, isAlive(mine), isAlive(others))
	}
	if err := tree.Remove(t.Context(), other); err != nil || isAlive(others) {
		t.Errorf("%v, %v", err, isAlive(others))
	}
}

// isAlive reports whether a child of the test runs.
func isAlive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestPodsComeAndGoAtTheSameTime(t *testing.T) {
	tree := hostTree(t, "/runonce-test-race")
	var wg sync.WaitGroup
	for _, uid := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			pod := testPod(uid, nil, nil)
			for range 30 {
				if _, err := tree.Ensure(t.Context(), pod); err != nil {
					t.Errorf("Ensure: %v", err)
				}
				if err := tree.Remove(t.Context(), pod); err != nil {
					t.Errorf("Remove: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// The class of burstable pods has the sum of its pods' shares.
func TestBurstableClassHasSumOfShares(t *testing.T) {
	tree := hostTree(t, "/runonce-test-class")
	one, two := testPod("one", list("1", ""), nil), testPod("two", list("500m", ""), nil)
	effort := testPod("effort", nil, nil)
	for _, pod := range []*v1.Pod{one, two, effort} {
		if _, err := tree.Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	// Not exact, since several numbers of shares have the same weight in v2.
	near := func(class string, want uint64) {
		t.Helper()
		n, err := tree.readShares(unix.AT_FDCWD, filepath.Join(tree.dirs["cpu"], "runonce-test-class", class))
		if err != nil {
			t.Error(err)
		}
		if n < want || n > want+want/20 {
			t.Errorf("%s: %d shares, want %d", class, n, want)
		}
	}
	near("burstable", 1536)
	near("besteffort", 2)
	if err := tree.Remove(t.Context(), two); err != nil {
		t.Error(err)
	}
	near("burstable", 1024)
	for _, pod := range []*v1.Pod{one, effort} {
		if err := tree.Remove(t.Context(), pod); err != nil {
			t.Error(err)
		}
	}
}

// Two processes add and remove pods of one class: each counts those of the other.
func TestClassOfTwoProcesses(t *testing.T) {
	here := hostTree(t, "/runonce-test-class-two")
	there, err := Detect(Root)
	if err != nil {
		t.Fatal(err)
	}
	there.Parent = here.Parent
	pods := map[string]*v1.Pod{}
	for name, cpu := range map[string]string{"one": "1", "two": "2", "three": "4", "four": "8"} {
		pods[name] = testPod(name, list(cpu, ""), nil)
	}
	pods["larger one"] = testPod("one", list("3", ""), nil)
	class := filepath.Join(here.dirs["cpu"], "runonce-test-class-two/burstable")
	for i, step := range []struct {
		tree   Tree
		add    string
		remove string
		want   uint64 // CPUs
	}{
		{here, "one", "", 1},
		{there, "two", "", 3},
		{here, "three", "", 7},
		{there, "", "one", 6},
		{there, "larger one", "", 9},
		{here, "four", "", 17},
		{there, "", "four", 9},
		{here, "", "two", 7},
		{here, "", "three", 3},
		{there, "", "larger one", 0},
	} {
		if step.add != "" {
			_, err = step.tree.Ensure(t.Context(), pods[step.add])
		} else {
			err = step.tree.Remove(t.Context(), pods[step.remove])
		}
		if err != nil {
			t.Fatal(err)
		}
		if step.want == 0 {
			continue // the class has gone with its last pod
		}
		got, err := here.readShares(unix.AT_FDCWD, class)
		if want := here.rounded(1024 * step.want); err != nil || got < want || got > want+want/20 {
			t.Errorf("step %d: %d shares, want %d: %v", i, got, want, err)
		}
	}
}

func BenchmarkEnsure(b *testing.B) {
	roottest.Require(b)
	tree, err := Detect(Root)
	if err != nil {
		b.Fatal(err)
	}
	tree.Parent = "/runonce-test-bench"
	pods := make([]*v1.Pod, 30)
	for i := range pods {
		pods[i] = testPod("bench"+string(rune('a'+i)), list("100m", ""), nil)
		if _, err := tree.Ensure(b.Context(), pods[i]); err != nil {
			b.Fatal(err)
		}
	}
	for name, fresh := range map[string]bool{"again": false, "new": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if fresh {
					b.StopTimer()
					if err := tree.Remove(b.Context(), pods[0]); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				if _, err := tree.Ensure(b.Context(), pods[0]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, pod := range pods {
		if err := tree.Remove(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
	}
}
