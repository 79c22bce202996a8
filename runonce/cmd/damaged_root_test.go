package cmd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/hack/roottest"
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

// TestDamagedDatabase: every command says that containerd's database is damaged, and what to do. Then the
// pod that runs is removed, and runs again, without it.
func TestDamagedDatabase(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, "")
	run := []string{"run", "--settle", "0", "--images-dir", boxImages(t), manifest(t, "web", "Always", "[sleep]")}
	m.once(t, run...)
	database := filepath.Join(m.dir, "root", "io.containerd.metadata.v1.bolt", "meta.db")
	for _, size := range []int64{3 * 4096, 0} { // pages, of which there are more
		if err := os.Truncate(database, size); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{{"ps"}, run, {"down", "--all"}} {
			if out := m.output(t, 4, command...); !strings.Contains(out, database+" is damaged: it ") || !strings.Contains(out, "delete "+m.dir+"/root/io.containerd.*") {
				t.Errorf("%s: %s", command[0], out)
			}
		}
	}
	forget := func() {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(m.dir, "root", "io.containerd.*"))
		for _, file := range files {
			err = errors.Join(err, os.RemoveAll(file))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	forget()
	m.once(t, run...)
	if processes := processesOf(t, m.dir); len(processes) != 1 {
		t.Errorf("one shim should run: %q", processes)
	}
	forget()
	m.once(t, "down", "--all")
	nothingLeft(t, m.dir)
}
