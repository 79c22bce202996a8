package cmd_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/runonce/cmd"
)

// TestCp: what is refused, with which exit code, and archives on standard input and output.
func TestCp(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	if got := invoke(t, m, "run", "--settle", "0", "--node", nodeFile(), manifest(t, "web", "Always", "[sleep]")); got.code != 0 {
		t.Fatal(got)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "a/b\nc", Size: 1, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte("x"))
	_ = w.Close()
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{args: []string{file, "web:/tmp"}},
		{args: []string{file, "default/web:tmp/copy", "-c", "main"}},
		{args: []string{"-n", "default", "pod/web:/tmp/copy", filepath.Join(dir, "back")}},
		{args: []string{"-", "web:/tmp"}},
		{args: []string{"web:/tmp/a", "-"}},
		{args: []string{"-", "web:/none"}, code: 1, stderr: `copying "-" to "web:/none": the directory does not exist`},
		{args: []string{"web:/none", dir}, code: 1, stderr: `copying "web:/none" to "` + dir + `": open /none: no such file or directory`},
		{args: []string{"web:/\x1b[31m\n", dir}, code: 1, stderr: `copying "web:/\x1b[31m\n" to "` + dir + `": open /`},
		{args: []string{file, file}, code: 2, stderr: "none of the paths is in a container: write it as POD:PATH"},
		{args: []string{"-", "-"}, code: 2, stderr: "none of the paths is in a container"},
		{args: []string{"web:/tmp"}, code: 2, stderr: "cp needs a source and a target"},
		{args: []string{"web:/tmp", dir, dir}, code: 2, stderr: "cp needs a source and a target"},
		{args: []string{"web:", dir}, code: 2, stderr: `"web:": a PATH is missing after the colon, such as / for the root directory`},
		{args: []string{":/tmp", dir}, code: 2, stderr: `":/tmp": a POD is missing before the colon; if this is a file of this machine, write "./:/tmp"`},
		{args: []string{"", "web:/tmp"}, code: 2, stderr: "cp needs two paths that are not empty"},
		{args: []string{"nobody:/x", dir}, code: 2, stderr: `no pod "nobody" on this machine; see "runonce ps"`},
		{args: []string{"-c", "nobody", "web:/tmp", dir}, code: 2, stderr: `pod "default/web" has no container "nobody"; it has: main`},
	} {
		own := []string{"cp", "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log")}
		got := invokeWith(t, cmd.IO{Open: m.open, Stdin: bytes.NewReader(archive.Bytes())}, append(own, tt.args...)...)
		if got.code != tt.code || !strings.HasPrefix(got.stderr, strings.TrimSuffix("runonce: "+tt.stderr, "runonce: ")) || tt.stderr == "" && got.stderr != "" {
			t.Errorf("%q: %d %q, want %d %q", tt.args, got.code, got.stderr, tt.code, tt.stderr)
		}
		if tt.args[len(tt.args)-1] != "-" || tt.code != 0 {
			continue
		}
		r := tar.NewReader(strings.NewReader(got.stdout))
		var names []string
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%v in %q", err, got.stdout)
			}
			names = append(names, h.Name)
		}
		if strings.Join(names, " ") != "a/ a/b\nc" {
			t.Errorf("archived %q", names)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "back")); string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestCpTerminal: no archive goes to a terminal.
func TestCpTerminal(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	got := invokeWith(t, cmd.IO{Open: m.open, StdoutTerminal: true}, "cp", "--root", m.root, "--state", filepath.Join(m.root, "state"), "web:/x", "-")
	if got.code != 2 || !strings.Contains(got.stderr, "refusing to write an archive to the terminal") {
		t.Errorf("%d %q", got.code, got.stderr)
	}
}
