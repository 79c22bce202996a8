package cmd_test

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/record"
)

// duplicate starts another version of the only pod on the machine, which no plan does.
func (m *memory) duplicate(t *testing.T) {
	t.Helper()
	records := record.Open(m.root, filepath.Join(m.root, "state"))
	all, err := records.List()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d pods, %v", len(all), err)
	}
	other := all[0].Pod.DeepCopy()
	other.UID = "other"
	pods, err := (&openedMemory{memory: m}).Pods(t.Context(), &v1.Node{}, runtime.Options{Records: records, LogDir: filepath.Join(m.root, "log"), Objects: &manifests.Set{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := pods.Sync(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := m.names(t); !slices.Equal(got, []string{"web", "web"}) {
		t.Fatalf("running: %v", got)
	}
}

// TestDuplicates: of two versions of a pod that run, every plan leaves the right one, and down none.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	dir := t.TempDir()
	writePod(t, dir, "web", boxPod("web", "Always", "[sleep]"))
	run := []string{"run", "--settle", "0s", "--node", nodeFile(), dir}
	if got := invoke(t, m, run...); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	before := m.running(t)

	m.duplicate(t)
	if got := invoke(t, m, run...); got.code != 0 || !strings.Contains(got.stderr, "default/web: Stopping (up to 1s): a duplicate") {
		t.Errorf("run: %+v", got)
	}
	if now := m.running(t); !slices.Equal(now, before) {
		t.Errorf("after run: %v, want %v", now, before)
	}

	m.duplicate(t)
	w := watchPaths(t, m, dir)
	w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
	w.end(t, syscall.SIGTERM, 0)
	if now := m.running(t); !slices.Equal(now, before) || strings.Count(w.stderr.String(), "a duplicate") != 1 {
		t.Errorf("after watch: %v, want %v\n%s", now, before, w.stderr.String())
	}

	m.duplicate(t)
	writePod(t, dir, "web", boxPod("web", "Always", "[sleep, 1h]"))
	if got := invoke(t, m, run...); got.code != 0 || strings.Count(got.stderr, "default/web: Stopping") != 2 {
		t.Errorf("run of another version: %+v", got)
	}

	m.duplicate(t)
	if got := invoke(t, m, "down", "web"); got.code != 0 || strings.Count(got.stdout, "default/web removed") != 2 || m.names(t) != nil {
		t.Errorf("down: %+v", got)
	}
}
