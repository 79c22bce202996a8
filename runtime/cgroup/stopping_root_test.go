package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// TestStopping: best-effort pods have the least share of the CPU, but not while some of them are stopped, whatever others
// come and go meanwhile.
func TestStopping(t *testing.T) {
	tree := hostTree(t, "/runonce-test-stopping")
	pods := []*v1.Pod{testPod("one", nil, nil), testPod("two", nil, nil), testPod("three", nil, nil)}
	ensure := func(pod *v1.Pod) {
		t.Helper()
		if _, err := tree.Ensure(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(pod *v1.Pod) {
		t.Helper()
		if err := tree.Remove(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	class := filepath.Join(tree.dirs["cpu"], tree.locate(pods[0]).above().path)
	check := func(when string, want uint64) {
		t.Helper()
		if got, err := tree.readShares(unix.AT_FDCWD, class); err != nil || got != tree.rounded(want) {
			t.Errorf("%s: %d shares, %v; want %d", when, got, err, tree.rounded(want))
		}
	}
	ensure(pods[0])
	ensure(pods[1])
	check("at first", podspec.MinShares)
	first := tree.Stopping(t.Context(), pods[0])
	check("while one is stopped", podspec.DefaultShares)
	second := tree.Stopping(t.Context(), pods[1])
	ensure(pods[2])
	remove(pods[0])
	first()
	check("while another one is stopped", podspec.DefaultShares)
	remove(pods[1])
	second()
	check("when they have stopped", podspec.MinShares)
	last := tree.Stopping(t.Context(), pods[2])
	remove(pods[2])
	last()
	if _, err := os.Stat(class); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the class is still there: %v", err)
	}
	tree.Stopping(t.Context(), testPod("other", list("1", ""), nil))()
}
