package backend

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportNothing: a directory without any image is an error, junk next to images is not.
func TestImportNothing(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := &machineEngine{}
	e.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	dir := t.TempDir()
	for _, junk := range []string{"", "notes.txt"} {
		if junk != "" {
			if err := os.WriteFile(filepath.Join(dir, junk), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := e.Import(t.Context(), dir)
		if want := dir + ": no image archive or OCI layout in this directory"; err == nil || err.Error() != want {
			t.Errorf("with %q: %v", junk, err)
		}
		if strings.Contains(log.String(), "ignored "+filepath.Join(dir, "notes.txt")) != (junk != "") {
			t.Errorf("with %q: %s", junk, &log)
		}
	}
}
