package cputime

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// A process and its children are counted, also one that outlives it.
func TestRecorderCountsDescendants(t *testing.T) {
	roottest.Require(t)
	sockets, err := Open()
	if err != nil {
		roottest.Lacks(t, "reports of the kernel about processes that end: %v", err)
	}
	r, err := sockets.Start()
	if err != nil {
		t.Fatal(err)
	}
	busy := "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "("+busy+"; exec sleep 30) >/dev/null 2>&1 & bash -c '"+busy+"'; echo $!")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(out))
	for name := ""; name != "sleep"; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		if err != nil {
			t.Fatal(err)
		}
		name = strings.TrimSpace(string(text))
	}
	usage, err := r.Stop(cmd.Process.Pid)
	_ = exec.CommandContext(t.Context(), "kill", pid).Run()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]time.Duration{}
	for _, u := range usage {
		got[u.Name] = u.CPU
	}
	t.Log(got, cmd.ProcessState.SystemTime()+cmd.ProcessState.UserTime())
	for _, name := range []string{"sh", "bash", "sleep"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no %s in %v", name, got)
		}
	}
	if got["bash"] < 10*time.Millisecond || got["sleep"] < 10*time.Millisecond {
		t.Errorf("%v, want at least 10 ms of bash and sleep", got)
	}
}
