package systemd

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTakeNotify: messages arrive at the socket, which no child can find.
func TestTakeNotify(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{filepath.Join(dir, "notify"), "@runonce-sdnotify-" + filepath.Base(dir)} {
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
		t.Setenv(variable, name)
		notify := TakeNotify()
		if _, set := os.LookupEnv(variable); set || notify == nil {
			t.Fatalf("%s: the variable is set: %v, notify is set: %v", name, set, notify != nil)
		}
		notify("READY=1\nSTATUS=up")
		got := make([]byte, 100)
		n, err := socket.Read(got)
		if err != nil || string(got[:n]) != "READY=1\nSTATUS=up" {
			t.Errorf("%s: got %q, %v", name, got[:n], err)
		}
	}
}

// TestNobodyToNotify: without a socket, or with one that does not exist, nothing is notified.
func TestNobodyToNotify(t *testing.T) {
	for _, name := range []string{"", "vsock:2:1", "relative", filepath.Join(t.TempDir(), "none")} {
		t.Setenv(variable, name)
		if TakeNotify() != nil {
			t.Errorf("%q: notifies", name)
		}
		if _, set := os.LookupEnv(variable); set {
			t.Errorf("%q: still set", name)
		}
	}
}

// TestNobodyReads: a service manager that does not read its messages does not stop this process.
func TestNobodyReads(t *testing.T) {
	dir, err := os.MkdirTemp("", "sd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv(variable, filepath.Join(dir, "notify"))
	notify := TakeNotify()
	large := strings.Repeat("x", 60_000) // so that few fill the buffer
	for range 5 {
		notify(large)
	}
}
