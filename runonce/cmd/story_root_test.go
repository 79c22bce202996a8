package cmd_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

// TestStoriesOnEmbedded runs the stories in real containers, on the embedded engine.
func TestStoriesOnEmbedded(t *testing.T) {
	roottest.Require(t)
	images := boxImages(t)
	runOnMachines(t, nil, func(t *testing.T) machine { return newMachine(t, images) })
}

// TestStoriesOnCrun runs the stories that do not wait on the embedded engine with crun.
func TestStoriesOnCrun(t *testing.T) {
	roottest.WithCrun(t, func(t *testing.T) {
		oneAtATime.Lock()
		defer oneAtATime.Unlock()
		m := newMachine(t, boxImages(t))
		m.world.Open = func(ctx context.Context, o backend.Options) (backend.Engine, error) {
			o.RuncPath = "crun"
			return backend.Open(ctx, o)
		}
		paths := slices.DeleteFunc(storyFiles(t), func(path string) bool {
			// crun makes what is mounted in a volume before that is read-only.
			return filepath.Base(path) == "read-only-volume.txtar" || waitLine.Match(parsed(t, path).Comment)
		})
		engineUnderTest{open: func(*testing.T) target { return m.target() }}.run(t, paths...)
	})
}

// TestStoriesOnDaemons runs stories on containerd daemons of this machine.
func TestStoriesOnDaemons(t *testing.T) {
	roottest.Require(t)
	images := boxImages(t)
	var both sync.WaitGroup
	defer both.Wait()
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		both.Go(func() {
			t.Run(string(version), func(t *testing.T) {
				runOnMachines(t, []string{"daemon", "containerd-" + string(version)}, func(t *testing.T) machine {
					return newMachine(t, images, "--address", daemon.Serve(t, version).Socket)
				})
			})
		})
	}
}

// oneAtATime is held by the stories that run one after the other.
var oneAtATime sync.Mutex

// machines bounds how many stories have a machine of their own at a time.
var machines = make(chan struct{}, 8)

// runOnMachines runs the stories one after the other on one machine. On a daemon, those that
// mostly wait run at the same time, each on a machine of its own. Not so on the embedded engine,
// of which a process can have only one (containerd has global settings), nor on an emulated
// machine, which is slow.
func runOnMachines(t *testing.T, conditions []string, newMachine func(t *testing.T) machine) {
	t.Helper()
	concurrent := slices.Contains(conditions, "daemon") && os.Getenv("RUNONCE_TEST_MACHINE") == ""
	var waits, rest []string
	for _, path := range storyFiles(t) {
		if concurrent && waitLine.Match(parsed(t, path).Comment) {
			waits = append(waits, path)
		} else {
			rest = append(rest, path)
		}
	}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, path := range waits {
		waiting.Go(func() {
			machines <- struct{}{}
			defer func() { <-machines }()
			engineUnderTest{conditions: conditions, open: func(t *testing.T) target { return newMachine(t).target() }}.run(t, path)
		})
	}
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	shared := newMachine(t)
	engineUnderTest{conditions: conditions, open: func(*testing.T) target { return shared.target() }}.run(t, rest...)
}

var waitLine = regexp.MustCompile(`(?m)^waits$`)

// target is this machine for a story to run on.
func (m machine) target() target {
	return target{world: m.world, flags: m.flags, logs: filepath.Join(m.dir, "log"), clear: m.clear}
}
