package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/runonce/runonce/hack/daemon"
	"github.com/runonce/runonce/hack/testimages"
)

// fault breaks something while a run is at work. It says whether there was something to break.
type fault struct {
	name string
	// kills tells whether containers may end by it, or exits be lost.
	kills bool
	do    func(ctx context.Context, r *round) (bool, error)
}

// faults are all of them.
var faults = []fault{
	{"kill -9 of runonce", false, func(_ context.Context, r *round) (bool, error) { return r.kill(r.active()) }},
	{"kill -9 of the runonce that serves containerd to another", false, func(_ context.Context, r *round) (bool, error) { return r.killServer() }},
	{"kill -9 of a shim", true, func(_ context.Context, r *round) (bool, error) { return r.killProcess("shim") }},
	{"kill -9 of a container", true, func(_ context.Context, r *round) (bool, error) { return r.killProcess("/bin/box ledger") }},
	{"kill -9 of the containerd daemon", false, func(ctx context.Context, r *round) (bool, error) { return r.killDaemon(ctx) }},
	{"SIGTERM to runonce", false, func(_ context.Context, r *round) (bool, error) {
		c := r.active()
		return c != nil, c.signal(syscall.SIGTERM)
	}},
}

// active returns one of the commands at work, nil if none is.
func (r *round) active() *command {
	for _, c := range r.commands {
		if !c.exited() {
			return c
		}
	}
	return nil
}

func (r *round) kill(c *command) (bool, error) {
	if c == nil {
		return false, nil
	}
	return true, c.signal(syscall.SIGKILL)
}

// killServer kills the first of two runs on the embedded engine.
func (r *round) killServer() (bool, error) {
	if r.daemon != nil || len(r.commands) < 2 || r.commands[0].exited() || r.commands[1].exited() {
		return false, nil
	}
	return r.kill(r.commands[0])
}

// killProcess kills a process of the installation whose command line has the word.
func (r *round) killProcess(word string) (bool, error) {
	all, err := r.installation().Processes()
	if err != nil {
		return false, err
	}
	var pids []int
	for _, p := range all {
		id, command, _ := strings.Cut(p, " ")
		if pid, err := strconv.Atoi(id); err == nil && strings.Contains(command, word) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return false, nil
	}
	err = syscall.Kill(pids[r.IntN(len(pids))], syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return true, err
}

// killDaemon kills the daemon and starts it again.
func (r *round) killDaemon(ctx context.Context) (bool, error) {
	if r.daemon == nil {
		return false, nil
	}
	if err := r.daemon.Kill(); err != nil {
		return false, err
	}
	return true, r.startDaemon(ctx, r.version)
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
