package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestManyPods: what a run holds for each pod is bounded, and nothing is left of many pods. What
// is counted here may not depend on how fast the machine is.
func TestManyPods(t *testing.T) {
	embedded(t, func(t *testing.T, b *box) {
		const pods = 100
		manifests := make([]string, pods)
		for i := range manifests {
			manifests[i] = strings.Replace(pod(fmt.Sprintf("p%03d", i), "Never", "sleep"), "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 0", 1)
		}
		dir := directory(t, manifests...)
		first := b.command(t, "run", b.upArgs(t, dir, "--until", "completed")...)
		var stdout, stderr bytes.Buffer
		first.Stdout, first.Stderr = &stdout, &stderr
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		if !eventually(func() bool { return len(b.logs(t)) == pods && len(b.running(t)) == pods }) {
			t.Errorf("%d pods run, want %d", len(b.running(t)), pods)
		}
		b.checkBounds(t, first.Process.Pid, pods)
		if err := first.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = first.Wait()
		if r := finished(t, first, stdout.String(), stderr.String()); r.code != 143 {
			t.Errorf("the first run, terminated: exit code %d\n%s", r.code, r.stderr)
		}
		before := b.running(t)
		again := b.up(t, dir, 0)
		if diff := cmp.Diff(before, b.running(t)); diff != "" || len(before) != pods || len(again.report.Results) != pods {
			t.Errorf("%d pods before the second run, %d results of it, and these differences: %s", len(before), len(again.report.Results), diff)
		}
		if r := b.run(t, "down", dir); r.code != 0 || strings.Count(r.stdout, " removed\n") != pods {
			t.Errorf("down: exit code %d, %d pods removed\n%s", r.code, strings.Count(r.stdout, " removed\n"), r.stderr)
		}
		// One directory for the image's only layer.
		if left := b.glob(t, "root/io.containerd.snapshotter.v1.overlayfs/snapshots/*"); len(left) > 1 {
			t.Errorf("snapshots left: %q", left)
		}
	})
}

// checkBounds checks what a process holds that waits for its pods.
func (b *box) checkBounds(t *testing.T, pid, pods int) {
	t.Helper()
	const (
		base   = 40 // descriptors, without pods
		perPod = 1  // the connection to the shim
		most   = 40 // threads, however many pods
	)
	count := func(what string) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, what))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	if !eventually(func() bool { return count("fd") <= base+perPod*pods }) {
		t.Errorf("%d descriptors for %d pods, want at most %d", count("fd"), pods, base+perPod*pods)
	}
	if n := count("task"); n > most {
		t.Errorf("%d threads for %d pods, want at most %d", n, pods, most)
	}
}

// running returns the names of the pods that ps reports, with the state of their containers.
func (b *box) running(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, p := range b.run(t, "ps", "-o", "json").report.Pods {
		for _, c := range p.Containers {
			if c.State == "Running" {
				names = append(names, p.Name)
			}
		}
	}
	return names
}

// logs returns the logs of all containers.
func (b *box) logs(t *testing.T) []string {
	t.Helper()
	return b.glob(t, "logs/*/*/*.log")
}

func (b *box) glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(b.dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
