package e2e

import (
	"os"
	"strings"
	"testing"
)

// stopsCriticalLast runs an ordinary and a critical pod, and checks that stop ends the ordinary one first and keeps both.
func (b *box) stopsCriticalLast(t *testing.T, stop func()) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	b.up(t, directory(t, diarist("dns", dir, "priorityClassName: system-node-critical", "{}"), diarist("web", dir, "", "{}")), 0)
	stop()
	_, web := diary(t, dir, "web")
	_, dns := diary(t, dir, "dns")
	if web["end"] == 0 || dns["end"] == 0 || dns["term"] < web["end"] {
		t.Errorf("web: %v, dns: %v; want both to end, dns last", web, dns)
	}
	if r := b.run(t, "ps"); strings.Count(r.stdout, "Terminated") < 2 {
		t.Errorf("ps: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// TestStopsCriticalLast: a pod that takes longer than those of its priority may is killed, and then the critical ones are stopped.
func TestStopsCriticalLast(t *testing.T) {
	b := newBox(t, "")
	b.stopsCriticalLast(t, func() {
		if r := b.run(t, "down", "--keep", "--all"); r.code != 0 || r.stdout != "default/dns stopped\ndefault/web stopped\n" {
			t.Errorf("down: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
	stubborn := strings.Replace(pod("stubborn", "Always", "stay"), "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 600", 1)
	b.up(t, directory(t, stubborn), 0)
	if r := b.run(t, "down", "--keep", "--all", "--shutdown-grace-by-priority", "0=1s,2000000000=1s"); r.code != 0 {
		t.Errorf("down: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	b.awaitEnd(t)
}
