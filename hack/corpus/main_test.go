package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/manifests"
)

func TestCases(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		want string
		ok   bool
	}{
		{"accepted", "accept", true},
		{"refused", "reject", false},
		{"silent", "warn", false},
		{"any", "survive", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "cases.tsv"), "case\twant\tnote\na\t"+tt.want+"\tx\n")
			write(t, filepath.Join(dir, "a", "pod.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n")
			if err := cases(t.Context(), dir); (err == nil) != tt.ok {
				t.Errorf("error %v, want none: %t", err, tt.ok)
			}
			if err := totals(t.Context(), dir); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	got := reason(manifests.Diagnostic{Field: "spec.containers[12].resources.limits[a.b/c]", Message: "Invalid value: x"})
	if want := "spec.containers[].resources.limits[]: Invalid value"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
