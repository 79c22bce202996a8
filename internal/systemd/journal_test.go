package systemd

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestSend: entries arrive, with values of several lines as well.
func TestSend(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "jn-") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "socket")
	if err := Check(path); err == nil {
		t.Error("a journal without a socket")
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	if err := Check(path); err != nil {
		t.Error(err)
	}
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Send(Field{"MESSAGE", "a\nb"}, Field{"PRIORITY", PriorityInfo}, Field{"EMPTY", ""}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100)
	n, err := socket.Read(got)
	if want := "MESSAGE\n\x03\x00\x00\x00\x00\x00\x00\x00a\nb\nPRIORITY=6\nEMPTY=\n"; err != nil || string(got[:n]) != want {
		t.Errorf("got %q, %v, want %q", got[:n], err, want)
	}
}
