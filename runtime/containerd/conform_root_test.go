package containerd_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

func TestEmbeddedConforms(t *testing.T) {
	enginetest.Conform(t, func(t *testing.T) enginetest.Subject { return subject(t, newTestDirs(t)) })
}

func TestCrunConforms(t *testing.T) {
	roottest.WithCrun(t, func(t *testing.T) {
		enginetest.Conform(t, func(t *testing.T) enginetest.Subject {
			p := newTestDirs(t)
			p.runtime = "crun"
			return subject(t, p)
		})
	})
}

func TestDaemonConforms(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			p := servedDirs(t, version)
			enginetest.Conform(t, func(t *testing.T) enginetest.Subject {
				own := p
				own.logs = t.TempDir()
				return subject(t, own)
			})
		})
	}
}

// servedDirs are directories with a daemon that runs as long as the test.
func servedDirs(t *testing.T, version daemon.Version) testDirs {
	t.Helper()
	roottest.Require(t)
	d := daemon.Serve(t, version)
	return testDirs{dir: d.Dir(), address: d.Socket}
}

func subject(t *testing.T, p testDirs) enginetest.Subject {
	t.Helper()
	archive, err := boxArchive()
	if err != nil {
		t.Fatal(err)
	}
	e := p.open(t, t.Context())
	if _, err := e.ImportArchive(t.Context(), archiveOf(t, archive)); err != nil {
		t.Fatal(err)
	}
	current := e
	t.Cleanup(func() { closeEngine(t, current) })
	return enginetest.Subject{
		Engine: e, Present: boxRef, Absent: "localhost/none:1", Mounts: true,
		Config: func(t *testing.T, podUID, name string, args ...string) engine.ContainerConfig {
			c := p.box(t, engine.ContainerID(podUID, name, time.Unix(0, 0), 0), args...)
			c.PodUID, c.Name = podUID, name
			c.LogPath = filepath.Join(p.logs, podUID+"-"+name+".log")
			c.Labels = map[string]string{"suite": "conform"}
			return c
		},
		Reopen: func(t *testing.T, between func()) engine.Engine {
			closeEngine(t, current)
			between()
			current = p.open(t, context.WithoutCancel(t.Context()))
			return current
		},
	}
}

func closeEngine(t *testing.T, e *containerd.Engine) {
	t.Helper()
	if err := e.Close(); err != nil {
		t.Errorf("closing the engine: %v", err)
	}
}
