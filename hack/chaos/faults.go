package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fault breaks something while a run is at work. It returns what it has hit, empty if there was
// nothing to break.
type fault struct {
	name string
	do   func(ctx context.Context, r *round) (hit string, err error)
}

// faults are all of them. Only those of a shim, of a container and of a manifest may end
// containers, or lose their exits: they mark the pod as killed.
var faults = []fault{
	{"kill -9 of runonce", func(_ context.Context, r *round) (string, error) { return r.active().signal(syscall.SIGKILL) }},
	{"kill -9 of the runonce that serves containerd to another", func(_ context.Context, r *round) (string, error) { return r.killServer() }},
	{"kill -9 of a shim", func(_ context.Context, r *round) (string, error) { return r.killProcess("shim") }},
	{"kill -9 of a container", func(_ context.Context, r *round) (string, error) { return r.killProcess(containerCommand) }},
	{"a manifest that is gone for a moment", func(ctx context.Context, r *round) (string, error) { return r.hideManifest(ctx) }},
	{"kill -9 of the containerd daemon", func(ctx context.Context, r *round) (string, error) { return r.killDaemon(ctx) }},
	{"SIGTERM to runonce", func(_ context.Context, r *round) (string, error) { return r.active().signal(syscall.SIGTERM) }},
	{"SIGSTOP of runonce for a moment", func(ctx context.Context, r *round) (string, error) { return r.haltActive(ctx) }},
	{"SIGSTOP of a shim for a moment", func(ctx context.Context, r *round) (string, error) { return r.haltProcess(ctx, "shim") }},
	{"SIGSTOP of a container for a moment", func(ctx context.Context, r *round) (string, error) { return r.haltProcess(ctx, containerCommand) }},
	{"SIGSTOP of the containerd daemon for a moment", func(ctx context.Context, r *round) (string, error) { return r.haltDaemon(ctx) }},
}

// containerCommand begins the command line of every container.
const containerCommand = "/bin/box ledger"

// active returns one of the commands at work, nil if none is.
func (r *round) active() *command {
	for _, c := range r.commands {
		if !c.exited() {
			return c
		}
	}
	return nil
}

// killServer kills the first of two runs on the embedded engine.
func (r *round) killServer() (string, error) {
	if r.daemon != nil || len(r.commands) < 2 || r.commands[0].exited() || r.commands[1].exited() {
		return "", nil
	}
	return r.commands[0].signal(syscall.SIGKILL)
}

// killProcess kills a process of the installation whose command line has the word.
func (r *round) killProcess(word string) (string, error) {
	p, ok, err := r.process(word)
	if !ok || err != nil {
		return "", err
	}
	pod := r.podOf(p.command)
	err = syscall.Kill(p.pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return "", nil
	}
	r.killed[pod] = true
	return cmp.Or(pod, "of any pod"), err
}

// haltProcess stops a process of the installation for a moment.
func (r *round) haltProcess(ctx context.Context, word string) (string, error) {
	p, ok, err := r.process(word)
	// A sidecar may be told to end at any time, and would be killed if it was not ready for that.
	if !ok || err != nil || strings.Contains(p.command, ".sidecar ") {
		return "", err
	}
	return cmp.Or(r.podOf(p.command), "of any pod"), r.halt(ctx, p.pid)
}

// hideManifest moves the manifest of a pod that is watched out of the directory, and back.
func (r *round) hideManifest(ctx context.Context) (string, error) {
	n := r.IntN(len(r.pods))
	dir, name := r.dirs[n%len(r.dirs)], r.pods[n].Name
	if c := r.commands[n%len(r.dirs)]; !c.watch || c.exited() {
		return "", nil
	}
	r.killed[name] = true
	path, hidden := filepath.Join(dir, name+".yaml"), filepath.Join(r.dir, "hidden")
	if err := os.Rename(path, hidden); err != nil {
		return "", err
	}
	pause(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
	return name, os.Rename(hidden, path)
}

func (r *round) haltActive(ctx context.Context) (string, error) {
	c := r.active()
	if c == nil {
		return "", nil
	}
	return c.name, r.halt(ctx, c.cmd.Process.Pid)
}

func (r *round) haltDaemon(ctx context.Context) (string, error) {
	if r.daemon == nil {
		return "", nil
	}
	return "daemon", r.halt(ctx, r.daemon.Pid)
}

// halt stops a process for less than the shortest grace period, which is two seconds.
func (r *round) halt(ctx context.Context, pid int) error {
	err := syscall.Kill(pid, syscall.SIGSTOP)
	if err == nil {
		pause(ctx, time.Duration(50+r.IntN(450))*time.Millisecond)
		err = syscall.Kill(pid, syscall.SIGCONT)
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil // it has ended, or somebody else has killed it
	}
	return err
}

// killDaemon kills the daemon and starts it again.
func (r *round) killDaemon(ctx context.Context) (string, error) {
	if r.daemon == nil {
		return "", nil
	}
	if err := r.daemon.Kill(); err != nil {
		return "", err
	}
	return "daemon", r.startDaemon(ctx, r.version)
}
