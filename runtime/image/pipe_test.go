package image

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipes: credentials from a pipe are those of every image, and those of a file are read again.
func TestPipes(t *testing.T) {
	t.Parallel()
	const config = `{"auths": {"r.example": {"username": "u", "password": "p"}}}`
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(fifo, []byte(config), 0o600) }() // if it fails, so does the test, which never ends
	o := KeychainOptions{AuthFile: fifo, Pipes: &Pipes{}}
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := NewKeychain(o).lookup(t.Context(), "r.example/x")
		if err != nil || got.User != "u" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	o.AuthFile = writeText(t, t.TempDir(), "config.json", config)
	k := NewKeychain(o)
	if _, err := k.lookup(t.Context(), "r.example/x"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.AuthFile, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := k.lookup(t.Context(), "r.example/x"); err != nil || got.User != "" {
		t.Errorf("after a change of the file: %+v, %v", got, err)
	}
	o.AuthFile = os.DevNull
	if err := o.Check(); err != nil {
		t.Error(err)
	}
}
