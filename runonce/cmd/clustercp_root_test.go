package cmd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clusterCopies: files are copied from and to a container of a cluster, and between two.
func clusterCopies(t *testing.T, c onCluster) {
	if err := c.LoadImages(t.Context(), "tar"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pods := write("pods.yaml", []byte(`apiVersion: v1
kind: Pod
metadata: {name: one}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: localhost/tar:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: two}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: localhost/tar:1, securityContext: {readOnlyRootFilesystem: true}}]}
`))
	c.once(t, "run", "--create-namespace", pods)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	file := write("tree/large", large)
	small := write("tree/sub/small", []byte("text"))
	c.once(t, "cp", file, "one:/tmp-large")
	c.once(t, "cp", filepath.Join(dir, "tree"), "one:/srv")
	c.once(t, "cp", small, "one:/srv")
	c.once(t, "cp", "one:/tmp-large", filepath.Join(dir, "back"))
	c.once(t, "cp", "one:/srv", dir)
	c.once(t, "cp", "one:/srv/.", "one:/dev/shm")
	c.once(t, "cp", "one:/srv/sub", "two:/dev/shm")
	c.once(t, "cp", "two:/dev/shm/sub/small", filepath.Join(dir, "between"))
	for name, want := range map[string][]byte{
		"back": large, "srv/large": large, "srv/sub/small": []byte("text"), "srv/small": []byte("text"), "between": []byte("text"),
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(want), err)
		}
	}
	if got := c.output(t, 1, "cp", small, "two:/srv"); !strings.Contains(got, "ead-only file system") {
		t.Errorf("a read-only root: %s", got)
	}
	if got := c.output(t, 1, "cp", "one:/none", dir); !strings.Contains(got, "No such file or directory") {
		t.Errorf("a file that does not exist: %s", got)
	}
	c.output(t, 1, "cp", small, "one:/none/")
}
