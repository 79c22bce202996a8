package backend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportNothing: a directory without any image is an error, and so is anything else in it.
func TestImportNothing(t *testing.T) {
	t.Parallel()
	e := &machineEngine{}
	dir := t.TempDir()
	if _, err := e.Import(t.Context(), dir); err == nil || err.Error() != dir+": no image archive or OCI layout in this directory" {
		t.Errorf("empty: %v", err)
	}
	junk := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(junk, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Import(t.Context(), dir); err == nil || !strings.HasPrefix(err.Error(), junk+": not an image archive") {
		t.Errorf("junk: %v", err)
	}
}
