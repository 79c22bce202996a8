package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coreos/go-systemd/v22/dbus"
	v1 "k8s.io/api/core/v1"
)

// sliceTree returns the machine's tree with slices below a parent of the test's own. Where
// systemd is not the first process, standIn replaces it.
func sliceTree(t *testing.T, parent string) Tree {
	t.Helper()
	tree := hostTree(t, parent)
	if err := tree.SetDriver(DriverSystemd); err != nil {
		t.Logf("systemd is replaced: %v", err)
		tree.units = &standIn{tree: tree}
	}
	leaveNothing(t, tree, slicePath(sliceName(strings.TrimPrefix(parent, "/"))))
	return tree
}

// standIn creates and removes the cgroups of slices as systemd does, in the hierarchies that
// it knows, but sets no limits.
type standIn struct {
	tree Tree
}

func (s *standIn) Start(_ context.Context, slice, _ string, _ []dbus.Property) error {
	return errors.Join(s.tree.createAll(s.tree.dirs["cpu"], slicePath(slice)), s.tree.createAll(s.tree.dirs["memory"], slicePath(slice)))
}

// StartScope makes the scope in one hierarchy only, as if the others were unknown.
func (s *standIn) StartScope(_ context.Context, scope, slice string, _ int) error {
	err := os.Mkdir(filepath.Join(s.tree.dirs["memory"], slicePath(slice), scope), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (s *standIn) Set(_ context.Context, slice string, _ []dbus.Property) error {
	if !s.tree.exists(slicePath(slice)) {
		return errors.New("no such unit")
	}
	return nil
}

func (s *standIn) Stop(_ context.Context, slice string) error {
	return errors.Join(removeAll(filepath.Join(s.tree.dirs["cpu"], slicePath(slice))), removeAll(filepath.Join(s.tree.dirs["memory"], slicePath(slice))))
}

func TestSliceOfAPod(t *testing.T) {
	tree := sliceTree(t, "/runonce-test-slice")
	pod := testPod("a-b", list("100m", "64Mi"), list("150m", "64Mi"))
	for range 2 { // safe to repeat
		got, err := tree.Ensure(t.Context(), pod)
		if want := "runonce_test_slice-burstable-poda_b.slice"; err != nil || got != want {
			t.Fatalf("Ensure = %q, %v, want %q", got, err, want)
		}
	}
	at := tree.locate(pod)
	want := map[string]string{"cpu/cpu.cfs_quota_us": "15000", "memory/memory.limit_in_bytes": "67108864"}
	if tree.V2 {
		want = map[string]string{"cpu/cpu.max": "15000 100000", "memory/memory.max": "67108864"}
	}
	for file, value := range want {
		controller, name, _ := strings.Cut(file, "/")
		data, err := os.ReadFile(filepath.Join(tree.dirs[controller], at.path, name))
		if got := strings.TrimSpace(string(data)); err != nil || got != value {
			t.Errorf("%s = %q, %v, want %q", file, got, err, value)
		}
	}
	// The class has the shares of its pods.
	own, err := tree.readSharesAt(at.path)
	above, errAbove := tree.readSharesAt(at.above().path)
	if err != nil || errAbove != nil || own != above {
		t.Errorf("shares of the class are %d, %v, of its only pod %d, %v", above, errAbove, own, err)
	}
	for range 2 {
		if err := tree.Remove(t.Context(), pod); err != nil {
			t.Errorf("Remove: %v", err)
		}
	}
}

func (t Tree) readSharesAt(p string) (uint64, error) {
	d, err := os.Open(filepath.Join(t.dirs["cpu"], filepath.Dir(p)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = d.Close() }()
	return t.readShares(int(d.Fd()), filepath.Base(p))
}

// The slices above the pods exist as long as a pod is in them, while pods are added and
// removed.
func TestSlicesOfPods(t *testing.T) {
	tree := sliceTree(t, "/runonce-test-pods")
	pods := []*v1.Pod{testPod("one", list("1", ""), nil), testPod("two", list("2", ""), nil), testPod("best", nil, nil)}
	var wg sync.WaitGroup
	for _, pod := range pods {
		wg.Go(func() {
			for range 10 {
				if _, err := tree.Ensure(t.Context(), pod); err != nil {
					t.Error(err)
				}
				if err := tree.Remove(t.Context(), pod); err != nil {
					t.Error(err)
				}
			}
			if _, err := tree.Ensure(t.Context(), pod); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, pod := range pods {
		for _, p := range pods[i:] {
			if !tree.exists(tree.locate(p).path) {
				t.Errorf("the slice of pod %s is gone", p.Name)
			}
		}
		if err := tree.Remove(t.Context(), pod); err != nil {
			t.Error(err)
		}
	}
}

// What still runs in the slice of a pod is killed.
func TestSliceWithAProcess(t *testing.T) {
	tree := sliceTree(t, "/runonce-test-busy")
	pod := testPod("busy", nil, nil)
	if _, err := tree.Ensure(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pid := sleeper(t)
	dir := filepath.Join(tree.dirs["cpu"], tree.locate(pod).path, "container")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(filepath.Join(dir, "cgroup.procs"), pid); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

// TestClosedConnection: systemd is called on a new connection when the old one was closed, as by
// a restart of the bus.
func TestClosedConnection(t *testing.T) {
	if err := SystemdBooted(); err != nil {
		t.Skip(err)
	}
	b := &systemdBus{}
	for range 2 {
		if err := b.Stop(t.Context(), "runonce-none.slice"); err != nil {
			t.Fatal(err)
		}
		b.conn.Close()
	}
}
