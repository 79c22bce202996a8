package containerd

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/internal/flock/flocktest"
	"github.com/runonce/runonce/runtime/containerd/server"
)

// serverVariable makes the test's own program the process that serves the root: see TestMain.
const serverVariable = "RUNONCE_TEST_SERVES"

// TestServerIsStopped: a command does not wait for a process that serves containerd and is
// stopped, and says which one that is.
func TestServerIsStopped(t *testing.T) {
	root := t.TempDir()
	holder := flocktest.Hold(t, serverVariable+"="+root, os.Args[0])
	if err := holder.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for !server.Holder(root).Stopped {
		time.Sleep(time.Millisecond)
	}
	synctest.Test(t, func(t *testing.T) {
		err := (&session{}).embedOrJoin(t.Context(), Options{Root: root, State: root})
		pid := holder.Pid
		for _, words := range []string{
			fmt.Sprintf("(pid %d), which serves containerd for %s, does not respond: it is stopped", pid, root),
			fmt.Sprintf("kill -CONT %d", pid), fmt.Sprintf("kill -9 %d", pid),
		} {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("error %v, want %q", err, words)
			}
		}
	})
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"v2.4.2": "2.4", "1.6.20~ds1": "1.6", "v2.0.0-rc.3": "2.0", "2.10": "2.10",
		"": "error", "v2": "error", "unknown": "error", "a.b.c": "error",
	} {
		got := "error"
		if major, minor, err := parseVersion(in); err == nil {
			got = fmt.Sprintf("%d.%d", major, minor)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
