package logs

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestToJournal: every line is in the journal and in the file, with what it belongs to.
func TestToJournal(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "jn-") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	path := filepath.Join(dir, "prod_web_1234-ab", "main", "0.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.ToJournal(filepath.Join(dir, "socket")); err != nil {
		t.Fatal(err)
	}
	if err := w.Copy("stdout", strings.NewReader("one\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Copy("stderr", strings.NewReader("half")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const fields = "SYSLOG_IDENTIFIER=web/main\nPOD_NAMESPACE=prod\nPOD_NAME=web\nPOD_UID=1234-ab\nCONTAINER_NAME=main\n"
	for _, want := range []string{
		"PRIORITY=6\n" + fields + "CONTAINER_STREAM=stdout\nMESSAGE=one\n",
		"PRIORITY=3\n" + fields + "CONTAINER_STREAM=stderr\nMESSAGE=half\nCONTAINER_PARTIAL_MESSAGE=true\n",
	} {
		got := make([]byte, 1000)
		n, err := socket.Read(got)
		if err != nil || string(got[:n]) != want {
			t.Errorf("got %q, %v, want %q", got[:n], err, want)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), " stdout F one\n") || !strings.Contains(string(text), " stderr P half\n") {
		t.Errorf("log %q, %v", text, err)
	}
}

// TestNoJournal: without a journal the file has everything, and nothing waits.
func TestNoJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	w, err := OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.ToJournal(filepath.Join(filepath.Dir(path), "none")); err != nil {
		t.Fatal(err)
	}
	if err := w.Copy("stdout", strings.NewReader(strings.Repeat("line\n", 1000))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "line\n") != 1000 {
		t.Errorf("%d lines, %v", strings.Count(string(text), "line\n"), err)
	}
}
