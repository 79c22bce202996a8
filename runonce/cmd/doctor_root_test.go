package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestDoctor: it asks registries as a run does, and nothing of what it has tried is left.
func TestDoctor(t *testing.T) {
	roottest.Require(t)
	server := registry.Start(t, registry.Options{})
	ref, plain := server.Host+"/far:1", filepath.Join(t.TempDir(), "box.tar")
	archiveOf(t, plain, ociimage.Build, boxImage(t, ref, 1<<10))
	skopeo(t, "copy", "--dest-tls-verify=false", "oci-archive:"+plain, "docker://"+ref)
	pods := podDir(t, oncePod("far", ref))
	m := newMachine(t, "")
	before := filesBelow(t, m.dir)
	out := m.once(t, "doctor", pods)
	if !strings.Contains(out, "image "+ref+"  OK      sha256:") {
		t.Errorf("the image:\n%s", out)
	}
	if diff := cmp.Diff(before, filesBelow(t, m.dir)); diff != "" {
		t.Errorf("it leaves:\n%s", diff)
	}
	if groups, err := filepath.Glob("/sys/fs/cgroup/*/runonce-*/*/podtrial*"); err != nil || len(groups) > 0 {
		t.Errorf("it leaves %v, %v", groups, err)
	}
}

// filesBelow returns the paths of all files below a directory.
func filesBelow(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestUnprivileged: in a container that is not privileged, a run ends before it starts anything.
func TestUnprivileged(t *testing.T) {
	roottest.Require(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "root")
	run := exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", self, "run", "--root", root, podDir(t, oncePod("a", "localhost/box:1")))
	run.Env = append(os.Environ(), asProgram+"=1")
	out, _ := run.CombinedOutput()
	if run.ProcessState.ExitCode() != 4 || !strings.HasPrefix(string(out), "runonce: container engine: root lacks CAP_SYS_ADMIN, which") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", run.ProcessState, out)
	}
	if started, err := filepath.Glob(filepath.Join(root, "io.containerd.*")); err != nil || len(started) > 0 {
		t.Errorf("containerd was started: %v, %v", started, err)
	}
}
