package daemon

import (
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// Programs returns the directory with containerd and its shim in the given version.
func Programs(t testing.TB, v Version) string {
	t.Helper()
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := Find(t.Context(), root, v)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// Serve runs a daemon of the given version until the end of the test, with all its files in
// a directory with a short path.
func Serve(t testing.TB, v Version) *Daemon {
	t.Helper()
	bin := Programs(t, v)
	d, err := Start(t.Context(), bin, roottest.Dir(t, "rd-"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Dir returns the daemon's directory.
func (d *Daemon) Dir() string { return filepath.Dir(d.Socket) }
