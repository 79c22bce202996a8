package manifests

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFingerprint: it changes with every change of what is read, and with no other.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(elements ...string) string { return filepath.Join(append([]string{dir}, elements...)...) }
	do(os.MkdirAll(at("pods", "below"), 0o755))
	do(os.MkdirAll(at("v1"), 0o755))
	do(os.MkdirAll(at("v2"), 0o755))
	do(os.WriteFile(at("v1", "a.yaml"), []byte("a"), 0o600))
	do(os.WriteFile(at("v2", "a.yaml"), []byte("a"), 0o600))
	do(os.Symlink("../v1/a.yaml", at("pods", "a.yaml")))
	for _, step := range []struct {
		name    string
		change  func() error
		changes bool
		o       Options
	}{
		{"nothing", func() error { return nil }, false, Options{}},
		{"a new file", func() error { return os.WriteFile(at("pods", "b.yaml"), []byte("b"), 0o600) }, true, Options{}},
		{"a new content of the same size", func() error {
			if err := os.WriteFile(at("pods", "c.tmp.swp"), []byte("c"), 0o600); err != nil {
				return err
			}
			return os.Rename(at("pods", "c.tmp.swp"), at("pods", "b.yaml"))
		}, true, Options{}},
		{"a hidden file", func() error { return os.WriteFile(at("pods", ".b.yaml.swp"), []byte("b"), 0o600) }, false, Options{}},
		{"a file that is not read", func() error { return os.WriteFile(at("pods", "below", "c.yaml"), []byte("c"), 0o600) }, false, Options{}},
		{"a file below", func() error { return os.WriteFile(at("pods", "below", "d.yaml"), []byte("d"), 0o600) }, true, Options{Recursive: true}},
		{"another target of a link", func() error {
			if err := os.Symlink("../v2/a.yaml", at("pods", "..new")); err != nil {
				return err
			}
			return os.Rename(at("pods", "..new"), at("pods", "a.yaml"))
		}, true, Options{}},
		{"a broken link", func() error { return os.Remove(at("v2", "a.yaml")) }, true, Options{}},
		{"no directory", func() error { return os.RemoveAll(at("pods")) }, true, Options{}},
	} {
		paths := []string{at("pods"), "-", "https://registry.example/pods.yaml"}
		before := Fingerprint(t.Context(), paths, step.o)
		do(step.change())
		if changed := Fingerprint(t.Context(), paths, step.o) != before; changed != step.changes {
			t.Errorf("%s: changed: %v, want %v", step.name, changed, step.changes)
		}
	}
}
