package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/hack/daemon"
)

// startDaemon runs a containerd daemon for the test.
func startDaemon(t *testing.T, version daemon.Version) *daemon.Daemon {
	t.Helper()
	if os.Geteuid() != 0 || testing.Short() {
		t.Skip("starts containers, needs root")
	}
	return daemon.Serve(t, version)
}

func TestDaemon(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			d := startDaemon(t, version)
			b := newBox(t, d.Socket)
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
			if r := b.run(t, "logs", "job"); r.code != 0 || r.stdout != "done\n" {
				t.Errorf("logs: exit code %d, %q\n%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

func TestDaemonEndsWhileNobodyWatches(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			b := newBox(t, startDaemon(t, version).Socket)
			b.endUnseen(t)
			b.awaitExit(t, 0, 7)
		})
	}
}
