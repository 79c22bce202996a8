package cmd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/roottest"
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
	awaitProcesses(t, m.dir, 0)
}

// TestRecordOfAnotherVersion: a pod whose record another version has written runs on, and keeps nobody
// from working with other pods. It can be removed, with all that it has, and run again.
func TestRecordOfAnotherVersion(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	web, other := manifest(t, "web", "Always", "[sleep]"), manifest(t, "other", "Always", "[sleep]")
	const node, room = "--capacity", "cpu=4,memory=2200Mi,pods=20"
	m.once(t, "run", node, room, "--settle", "0", web)
	files, err := filepath.Glob(filepath.Join(m.dir, "root", "pods", "*", "pod.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	convert := func() string {
		t.Helper()
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		newer := strings.Replace(string(text), `"version":1,`, `"version":2,"attempts":{},`, 1)
		if err := os.WriteFile(files[0], []byte(newer), 0o600); err != nil {
			t.Fatal(err)
		}
		return newer
	}
	newer := convert()
	for _, args := range [][]string{
		{"plan", node, room, other}, {"run", node, room, "--settle", "0", other}, {"down", "other"},
	} {
		m.once(t, args...)
	}
	if out := m.once(t, "ps", "-o", "json"); !strings.Contains(out, "RecordUnsupported") || !strings.Contains(out, files[0]+" has version 2") {
		t.Errorf("ps: %s", out)
	}
	if text, err := os.ReadFile(files[0]); err != nil || string(text) != newer {
		t.Errorf("its record has changed: %v\n%s", err, text)
	}
	awaitProcesses(t, m.dir, 1)
	if out := m.once(t, "run", node, room, "--settle", "0", web); !strings.Contains(out, "Running") || strings.Contains(out, "earlier run") {
		t.Errorf("run: %s", out)
	}
	convert()
	m.once(t, "down", "web")
	m.once(t, "run", node, room, "--settle", "0", web)
	convert()
	m.once(t, "down", "--all")
	nothingLeft(t, m.dir)
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
	awaitProcesses(t, m.dir, 1)
	forget()
	m.once(t, "down", "--all")
	nothingLeft(t, m.dir)
}
