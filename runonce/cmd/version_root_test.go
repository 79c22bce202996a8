package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

func TestVersionOfDaemon(t *testing.T) {
	roottest.Require(t)
	world := cmd.IO{Versions: backend.Versions, Getenv: func(string) string { return "" }}
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			d := daemon.Serve(t, version)
			got := invokeWith(t, world, "version", "-o", "json", "--address", d.Socket)
			var v struct {
				Containerd      string
				Daemon, Runtime struct{ Path, Version, Reason string }
			}
			if err := json.Unmarshal([]byte(got.stdout), &v); err != nil {
				t.Fatalf("exit code %d: %v\n%s%s", got.code, err, got.stdout, got.stderr)
			}
			if v.Daemon.Path != d.Socket || !strings.HasPrefix(strings.TrimPrefix(v.Daemon.Version, "v"), string(version)+".") {
				t.Errorf("daemon %+v, want %s", v.Daemon, version)
			}
			if !slices.Contains([]string{"crun", "runc"}, filepath.Base(v.Runtime.Path)) || !strings.Contains(v.Runtime.Version, ".") || v.Runtime.Reason == "" {
				t.Errorf("runtime %+v", v.Runtime)
			}
		})
	}
}

func TestVersionWithoutDaemon(t *testing.T) {
	t.Parallel()
	world := cmd.IO{Versions: backend.Versions, Getenv: func(string) string { return "" }}
	got := invokeWith(t, world, "version", "--address", filepath.Join(t.TempDir(), "none"))
	if got.code != 4 || !strings.Contains(got.stderr, "looking for containerd's socket") {
		t.Errorf("exit code %d, %q; want 4", got.code, got.stderr)
	}
}
