package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestFrozen: down stops containers that somebody has frozen, with runc pause for example. SIGKILL alone
// does not in cgroups of version 1.
func TestFrozen(t *testing.T) {
	b := newBox(t, "")
	dir := directory(t, pod("web", "Always", "sleep"))
	b.up(t, dir, 0)
	b.awaitProcess(t, "/bin/box sleep")
	pid, _, _ := strings.Cut(b.containers(t)[0], " ")
	text, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	file, state := "", ""
	for line := range strings.Lines(string(text)) {
		switch f := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case f[1] == "freezer":
			file, state = "/sys/fs/cgroup/freezer"+f[2]+"/freezer.state", "FROZEN"
		case f[1] == "" && file == "":
			file, state = "/sys/fs/cgroup"+f[2]+"/cgroup.freeze", "1"
		}
	}
	if err := os.WriteFile(file, []byte(state), 0); err != nil {
		t.Fatal(err)
	}
	if r := b.run(t, "down", dir); r.code != 0 {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
		_ = os.WriteFile(file, []byte("THAWED"), 0)
	}
}
