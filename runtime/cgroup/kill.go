package cgroup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

const (
	// killTimeout bounds the wait for processes that got SIGKILL: they may hang in the kernel.
	killTimeout = 10 * time.Second
	// killInterval is how often it looks whether they are gone.
	killInterval = 10 * time.Millisecond
)

// Kill kills the processes in the cgroup of a container of the pod, of which nothing else may know any
// more: nobody asks the OCI runtime. Without an ID it kills all of the pod, as the kubelet does before
// it removes a pod's cgroup.
func (t Tree) Kill(ctx context.Context, pod *v1.Pod, id string) error {
	at := t.locate(pod)
	if !t.exists(at.path) {
		return nil
	}
	if err := t.killIn(ctx, at.path, id); err != nil {
		return fmt.Errorf("killing the processes in cgroup %s: %w", at.path, err)
	}
	return nil
}

// killIn kills the processes in the cgroups below p of the container with the ID, and those below them.
func (t Tree) killIn(ctx context.Context, p, id string) error {
	deadline := time.Now().Add(killTimeout)
	for {
		left := false
		for _, root := range t.hierarchies() {
			for _, dir := range within(filepath.Join(root, p), id) {
				if killAll(dir) {
					left = true
				}
			}
		}
		switch {
		case !left:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(deadline):
			return fmt.Errorf("they are still running %s after SIGKILL: %w", killTimeout, unix.EBUSY)
		}
		time.Sleep(killInterval)
	}
}

// within returns the cgroups of the container with the ID below that of a pod: a directory or a scope of
// systemd. Without an ID it returns that of the pod.
func within(dir, id string) (dirs []string) {
	if id == "" {
		return []string{dir}
	}
	below, _ := children(dir, 0)
	for _, name := range below {
		if scope, ok := strings.CutSuffix(name, ".scope"); name == id || ok && strings.HasSuffix(scope, "-"+id) {
			dirs = append(dirs, filepath.Join(dir, name))
		}
	}
	return dirs
}

// killAll sends SIGKILL to the processes in the cgroup dir and below it, and reports whether there
// were any.
func killAll(dir string) (found bool) {
	pids := processes(dir)
	kill(dir, pids)
	if found = len(pids) > 0; found {
		// In a frozen cgroup of version 1 SIGKILL ends nothing.
		_ = writeFile(filepath.Join(dir, "freezer.state"), "THAWED")
	}
	below, _ := children(dir, 0)
	for _, name := range below {
		if killAll(filepath.Join(dir, name)) {
			found = true
		}
	}
	return found
}

// kill sends SIGKILL to those of the processes that are in the cgroup dir.
func kill(dir string, pids []int) {
	for _, pid := range pids {
		// It stands for the process even when the number is used again.
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if slices.Contains(processes(dir), pid) {
			_ = p.Kill()
		}
		_ = p.Release()
	}
}

// processes returns those in the cgroup dir, none if it is gone.
func processes(dir string) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for word := range strings.FieldsSeq(string(text)) {
		// A process of another PID namespace is 0.
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
