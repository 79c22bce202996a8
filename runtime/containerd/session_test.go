package containerd

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/internal/testing/flocktest"
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

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"v2.4.2": "", "1.6.20~ds1": "", "v2.0.0-rc.3": "", "2.10": "", "v1.5.11": "version v1.5.11 is older than 1.6",
		"": `unrecognized version ""`, "v2": `unrecognized version "v2"`, "unknown": `unrecognized version "unknown"`,
	} {
		if got := textOf(checkVersion(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
