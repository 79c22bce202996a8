// Package install_test checks what "make install" installs.
package install_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInstall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, manual := filepath.Join(dir, "built"), filepath.Join(dir, "manual")
	for _, path := range []string{program, manual} {
		if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	units, err := filepath.Glob("../../packaging/systemd/*.*")
	if err != nil || len(units) == 0 {
		t.Fatalf("no units: %v", err)
	}
	units = append(units, "../../packaging/gce/runonce-gce.service")
	want := map[string]fs.FileMode{
		"usr/bin/runonce":                                  0o755,
		"usr/share/man/man1/runonce.1":                     0o644,
		"usr/share/bash-completion/completions/runonce":    0o644,
		"usr/share/zsh/site-functions/_runonce":            0o644,
		"usr/share/fish/vendor_completions.d/runonce.fish": 0o644,
		"usr/libexec/runonce/gce/gce-token":                0o755,
		"usr/libexec/runonce/gce/providers.yaml":           0o644,
	}
	for _, unit := range units {
		want["usr/lib/systemd/system/"+filepath.Base(unit)] = 0o644
	}
	root := filepath.Join(dir, "root")
	install := exec.CommandContext(t.Context(), "make", "-C", "../..", "install", "PROGRAM="+program, "MANUAL="+manual, "PREFIX=/usr", "DESTDIR="+root)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := map[string]fs.FileMode{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			got[strings.TrimPrefix(path, root+"/")] = info.Mode()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("installed files (-want +got):\n%s", diff)
	}
	for _, unit := range units {
		text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", filepath.Base(unit)))
		if err != nil || strings.Contains(string(text), "/usr/local/") {
			t.Errorf("%s: %v: does not run the installed program:\n%s", unit, err, text)
		}
	}
}
