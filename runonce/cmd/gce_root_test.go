package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/disk"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestDeclarationWithDisk: the container of a declaration has a disk, which keeps its content when the pod is replaced, and
// is free again when it is gone.
func TestDeclarationWithDisk(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	name := disk.Attach(t, "data", "")
	declaration := filepath.Join(t.TempDir(), "gce-container-declaration")
	run := func(args string) {
		t.Helper()
		text := strings.NewReplacer("ARGS", args, "NAME", name).Replace(`
spec:
  containers:
  - name: web
    image: localhost/box:1
    args: [do, ARGS, sleep]
    volumeMounts: [{name: disk, mountPath: /disk}]
  volumes: [{name: disk, gcePersistentDisk: {pdName: NAME}}]
`)
		if err := os.WriteFile(declaration, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m.once(t, "run", "--format", "gce-container-declaration", "--pull", "missing", declaration)
	}
	run("write /disk/note kept")
	run("cat /disk/note")
	if got := m.once(t, "logs", "web"); !strings.Contains(got, "kept") {
		t.Errorf("the second pod reads %q", got)
	}
	m.once(t, "down", declaration)
	f, err := os.OpenFile("/dev/disk/by-id/google-"+name, os.O_RDWR|os.O_EXCL, 0)
	if err != nil {
		t.Fatalf("the disk is still in use: %v", err)
	}
	_ = f.Close()
}
