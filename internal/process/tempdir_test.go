package process

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSweep: what dead processes have left is removed, and nothing else.
func TestSweep(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(t.TempDir(), "a")
	if err := Sweep(parent, os.Remove); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	mine, err := TempDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	const pid = "4194305" // that no process can have
	dead := filepath.Join(parent, tempPrefix()+pid+"-1")
	others := []string{filepath.Join(parent, "tmp-1-"+pid+"-1"), filepath.Join(parent, pid), filepath.Join(parent, tempPrefix())}
	for _, dir := range append(others, dead) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var swept []string
	if err := Sweep(parent, func(dir string) error { swept = append(swept, dir); return nil }); err != nil || !slices.Equal(swept, []string{dead}) {
		t.Errorf("swept %q, %v; there are %q of this process and others' %q", swept, err, mine, others)
	}
}
