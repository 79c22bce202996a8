package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/runonce/runonce/hack/machine"
	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/testimages"
)

const (
	// Each world has host ports of its own, for the most pods that a round has.
	firstPort, portsOfWorld = 23500, 10
)

// world is an installation of runonce, in which one round follows the other.
type world struct {
	*series
	*rand.Rand
	dir       string
	program   string
	archives  string
	firstPort int32
	daemon    *daemon.Daemon // nil for the embedded engine
	version   daemon.Version
}

func (w *world) installation() machine.Installation {
	return machine.Installation{Dir: w.dir, Programs: []string{"/bin/box"}}
}

// rounds carries out rounds until there are enough, or one fails.
func (w *world) rounds(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			w.stopped.Store(true)
		}
	}()
	if w.dir, err = os.MkdirTemp("/run", "rx-"); err != nil { // a socket's path has to be short
		return err
	}
	// Root of a pod with users of its own is nobody here, and has to reach its root directory.
	if err := os.Chmod(w.dir, 0o711); err != nil {
		return err
	}
	if w.engine != embedded {
		if err := w.startDaemon(ctx, daemon.Version(w.engine)); err != nil {
			return err
		}
	}
	for !w.stopped.Load() {
		n := int(w.next.Add(1)) - 1
		if n >= int(w.first)+w.options.rounds {
			break
		}
		w.Rand = rand.New(rand.NewPCG(w.seed, uint64(n)))
		begin := time.Now()
		r := w.newRound()
		err := r.run(ctx)
		took := time.Since(begin)
		if err == nil && w.slow > 0 && took > w.slow {
			err = fmt.Errorf("it took %s", took)
		}
		if err != nil {
			return fmt.Errorf("round %d of seed %d (%s: %s), see %s: %w", n, w.seed, r.kind.name, r, w.dir, errors.Join(err, r.writeCommands()))
		}
		w.conclude(n, r, took)
	}
	if w.daemon != nil {
		err = w.daemon.Stop()
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}

// startDaemon starts a containerd daemon, or starts it again.
func (w *world) startDaemon(ctx context.Context, v daemon.Version) error {
	root, err := testimages.Root()
	if err != nil {
		return err
	}
	bin, err := daemon.Find(ctx, root, v)
	if err != nil {
		return err
	}
	w.version = v
	if w.daemon, err = daemon.Start(ctx, bin, w.dir+"/d"); err != nil {
		return fmt.Errorf("containerd %s: %w", v, err)
	}
	return nil
}
