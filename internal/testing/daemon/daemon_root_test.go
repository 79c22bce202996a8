package daemon_test

import (
	"net"
	"testing"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
)

func TestStart(t *testing.T) {
	t.Parallel()
	roottest.Require(t)
	for _, v := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			bin := daemon.Programs(t, v)
			d, err := daemon.Start(t.Context(), bin, roottest.Dir(t, "daemon-"))
			if err != nil {
				t.Fatal(err)
			}
			var dialer net.Dialer
			if c, err := dialer.DialContext(t.Context(), "unix", d.Socket); err != nil || c.Close() != nil {
				t.Error(err)
			}
			if err := d.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if _, err := daemon.Start(t.Context(), "/nonexistent", t.TempDir()); err == nil {
		t.Error("no error")
	}
}
