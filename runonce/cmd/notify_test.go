package cmd_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/systemd"
	"github.com/runonce/runonce/runonce/cmd"
)

// TestNotify: a run says that it is ready only if it has reached its goal, and then how its pods
// are; one that removes its pods, and down, say that they are stopping.
func TestNotify(t *testing.T) {
	for _, tc := range []struct {
		name string
		code int
		args []string
		want []string
	}{
		{"goal", 0, []string{"run", manifest(t, "web", "Always", "[sleep]")}, []string{"READY=1", "STATUS=1 of 1 pod running"}},
		{"failed", 1, []string{"run", "--until", "completed", manifest(t, "bad", "Never", "[exit, '3']")}, []string{"STATUS=0 of 1 pod completed; default/bad: Failed (Error)"}},
		{
			"removed", 0,
			[]string{"run", "--rm", "--until", "completed", manifest(t, "job", "Never", "[exit, '0']")},
			[]string{"READY=1", "STOPPING=1", "STATUS=1 of 1 pod completed"},
		},
		{"down", 0, []string{"down", "--all"}, []string{"STOPPING=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			messages := listen(t)
			m := newMemory(t)
			args := append(tc.args, "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log"))
			if tc.args[0] == "run" {
				args = append(args, "--node", nodeFile(), "--settle", "0s")
			}
			if got := invokeWith(t, cmd.IO{Open: m.open, Notify: systemd.TakeNotify()}, args...); got.code != tc.code {
				t.Fatalf("%+v", got)
			}
			got := messages()
			// When the states on the way are sent depends on how fast they follow each other.
			got = slices.DeleteFunc(got, func(message string) bool {
				return !slices.Contains(tc.want, message) && !strings.Contains(message, "=1")
			})
			if diff := cmp.Diff(tc.want, slices.Compact(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// lastStatus returns the state in the last message that has one.
func lastStatus(messages []string) (last string) {
	for _, message := range messages {
		if text, ok := strings.CutPrefix(message, "STATUS="); ok {
			last = text
		}
	}
	return last
}

// listen makes a socket of a service manager, and returns a function for the messages so far.
func listen(t *testing.T) func() []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd-") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	var mu sync.Mutex
	var all []string
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				return // the test has ended
			}
			mu.Lock()
			all = append(all, string(buffer[:n]))
			mu.Unlock()
		}
	}()
	// Messages that were sent before this one have come when it has.
	calls := 0
	return func() []string {
		t.Helper()
		calls++
		last, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = last.Close() }()
		if _, err := last.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		for {
			mu.Lock()
			got := slices.Clone(all)
			mu.Unlock()
			all := slices.DeleteFunc(slices.Clone(got), func(message string) bool { return message == "last" })
			if len(got)-len(all) == calls {
				return all
			}
			time.Sleep(time.Millisecond)
		}
	}
}
