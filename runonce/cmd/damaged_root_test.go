package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/roottest"
)

// TestDamagedRecord: a record that is damaged keeps no command from its work. The pod runs again, or is
// removed, with all that it has left.
func TestDamagedRecord(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	web := manifest(t, "web", "Always", "[sleep]")
	run := []string{"run", "--capacity", "cpu=4,memory=1100Mi,pods=20", "--settle", "0", web}
	damage := func() {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(m.dir, "root", "pods", "*", "pod.json"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v, %v", files, err)
		}
		if err := os.Truncate(files[0], 0); err != nil {
			t.Fatal(err)
		}
	}
	m.once(t, run...)
	damage()
	if out := m.once(t, "ps"); !strings.Contains(out, "RecordDamaged") {
		t.Errorf("ps: %s", out)
	}
	if out := m.once(t, run...); !strings.Contains(out, "Running") || strings.Contains(out, "earlier run") {
		t.Errorf("run: %s", out)
	}
	damage()
	if out := m.once(t, "down", "--all"); !strings.Contains(out, "removed") {
		t.Errorf("down: %s", out)
	}
	for _, p := range processesOf(t, m.dir) {
		t.Errorf("a process is left: %s", p)
	}
}
