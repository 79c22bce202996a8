package disk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// links is the directory of the names that udev gives disks.
const links = "/dev/disk/by-id"

// Attach attaches a file as a disk of Compute Engine is, until the end of the test, with options of losetup. It returns the
// device name, which begins with the given one. Without a file, the disk is empty.
func Attach(t *testing.T, name, file string, options ...string) string {
	t.Helper()
	if file == "" {
		const size = 32 << 20
		file = filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "losetup", append(options, "--find", "--show", file)...).Output()
	if err != nil {
		t.Fatalf("losetup: %v", err)
	}
	device := strings.TrimSpace(string(out))
	name = fmt.Sprintf("%s-%d", name, os.Getpid())
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "losetup", "-d", device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	Name(t, device, name)
	return name
}

// Name gives a device another name, until the end of the test.
func Name(t *testing.T, device, name string) {
	t.Helper()
	if err := os.MkdirAll(links, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(links, "google-"+name)
	if err := os.Symlink(device, link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(link) })
}
