package cmd_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/runonce/runonce/runonce/cmd"
)

// listenJournal makes the socket of a journal, and returns its path and a function that waits for an
// entry with the field.
func listenJournal(t *testing.T) (path string, await func(field string) []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "jn-") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "socket")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	entries := make(chan []string, 1000)
	go func() {
		buffer := make([]byte, 1<<17)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				close(entries)
				return
			}
			entries <- strings.Split(strings.TrimSuffix(string(buffer[:n]), "\n"), "\n")
		}
	}()
	return path, func(field string) []string {
		t.Helper()
		for entry := range entries {
			if slices.Contains(entry, field) {
				return entry
			}
		}
		t.Fatalf("no entry with %s", field)
		return nil
	}
}

// TestJournal: log messages are entries with fields, and nothing else is on standard error.
func TestJournal(t *testing.T) {
	t.Parallel()
	path, await := listenJournal(t)
	m := newMemory(t)
	place := []string{"--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log"), "--node", nodeFile(), "--log-format", "journal"}
	run := func(args ...string) invocation {
		return invokeWith(t, cmd.IO{Open: m.open, Journal: path, StderrTerminal: true}, slices.Concat(args, place)...)
	}
	if got := run("run", manifest(t, "bad", "Never", "[exit, '3']"), "--log-level", "info"); got.code != 1 || got.stderr != "" || !strings.Contains(got.stdout, "Failed") {
		t.Errorf("%+v", got)
	}
	entry := await("MESSAGE=default/bad: Failed: container \"main\" exited with code 3")
	for _, want := range []string{"PRIORITY=6", "SYSLOG_IDENTIFIER=runonce", "POD_NAMESPACE=default", "POD_NAME=bad", "DONE=1", "TOTAL=1"} {
		if !slices.Contains(entry, want) {
			t.Errorf("no %s in %q", want, entry)
		}
	}
	if got := run("run", "/none"); got.code != 2 || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	await("PRIORITY=3")
}

// TestNoJournal: without a journal, nothing is started that should write to it.
func TestNoJournal(t *testing.T) {
	t.Parallel()
	pod := manifest(t, "web", "Always", "[sleep]")
	none := filepath.Join(t.TempDir(), "none")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--log-format", "journal"}, "runonce: --log-format journal: no journal listens at " + none},
		{[]string{"--container-logs", "journal"}, "runonce: --container-logs journal: no journal listens at " + none},
		{[]string{"--container-logs", "none"}, `--container-logs "none": must be files or journal`},
	} {
		world := noEngine(t)
		world.Journal = none
		got := invokeWith(t, world, append([]string{"run", pod, "--node", nodeFile()}, tc.args...)...)
		if got.code != 2 || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("%v: %+v", tc.args, got)
		}
	}
}
