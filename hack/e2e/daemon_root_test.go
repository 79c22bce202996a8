package e2e

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/daemon"
)

func TestDaemon(t *testing.T) {
	daemons(t, func(t *testing.T, b *box) {
		bridged := strings.Replace(pod("bridged", "Always", "sleep"), "hostNetwork: true", "hostNetwork: false", 1)
		dir := directory(t, bridged, pod("job", "Never", "exit", "0", "done"), pod("bad", "Never", "exit", "3", "oh no"))
		want := []string{"bridged=Ready", "job=Succeeded", "bad=Failed"}
		for range 2 {
			got := b.up(t, dir, 1, "--until", "completed")
			if diff := cmp.Diff(want, got.report.outcomes()); diff != "" {
				t.Fatalf("outcomes (-want +got):\n%s\n%s", diff, got.stdout)
			}
			bad := got.report.Results[2].Containers[0]
			if bad.ExitCode == nil || *bad.ExitCode != 3 || !cmp.Equal(bad.LogTail, []string{"oh no"}) {
				t.Errorf("the failed container is shown as %+v", bad)
			}
		}
		b.checkInspect(t)
		if r := b.run(t, "logs", "job"); r.code != 0 || r.stdout != "done\n" {
			t.Errorf("logs: exit code %d, %q\n%s", r.code, r.stdout, r.stderr)
		}
	}, daemon.Current, daemon.Debian)
}

func TestDaemonEndsWhileNobodyWatches(t *testing.T) {
	daemons(t, func(t *testing.T, b *box) {
		b.endUnseen(t)
		b.awaitExit(t, 0, 7)
	}, daemon.Current, daemon.Debian)
}
