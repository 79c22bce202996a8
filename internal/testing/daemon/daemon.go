// Package daemon runs containerd daemons for tests, in their own directories and in the
// versions that runonce is tested with.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Version is a minor release of containerd.
type Version string

// The versions: the current one, which hack/tools.mk builds, and Debian 12's.
const (
	Current Version = "2.4"
	Debian  Version = "1.6"
)

// Daemon is a running containerd.
type Daemon struct {
	// Socket is the path of its socket.
	Socket string
	// Pid is its process ID.
	Pid int

	process *Process
}

// Find returns the directory with containerd and its shim in the given version. root is the
// project's directory. `make tools` installs both.
func Find(ctx context.Context, root string, v Version) (string, error) {
	dirs := []string{filepath.Join(root, ".cache", "bin")}
	if v == Debian {
		dirs = []string{filepath.Join(root, ".cache", "debian", "usr", "bin"), "/usr/bin"}
	}
	for _, dir := range dirs {
		out, err := exec.CommandContext(ctx, filepath.Join(dir, "containerd"), "--version").Output()
		if f := strings.Fields(string(out)); err == nil && len(f) > 2 && strings.HasPrefix(strings.TrimPrefix(f[2], "v"), string(v)+".") {
			return dir, nil
		}
	}
	return "", fmt.Errorf("finding containerd %s in %s: run make tools", v, strings.Join(dirs, ", "))
}

// Start runs the containerd in the directory bin, with all its files below dir, and returns
// once it accepts connections. dir must be short: a socket path has at most 107 bytes. The
// daemon runs until Stop, even if ctx is canceled.
func Start(ctx context.Context, bin, dir string) (*Daemon, error) {
	return StartAt(ctx, bin, dir, filepath.Join(dir, "state"), WithoutCRI)
}

// WithoutCRI is the configuration with which Start runs containerd.
const WithoutCRI = "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"

// StartAt is like Start, with another directory for what ends with a reboot, and a configuration.
func StartAt(ctx context.Context, bin, dir, state, config string) (*Daemon, error) {
	d := &Daemon{Socket: filepath.Join(dir, "containerd.sock")}
	err := prepare(dir, config)
	if err == nil {
		d.process, err = Launch(ctx, filepath.Join(dir, "containerd.log"), filepath.Join(bin, "containerd"),
			"--config", filepath.Join(dir, "containerd.toml"), "--address", d.Socket,
			"--root", filepath.Join(dir, "root"), "--state", state, "--log-level", "warn")
	}
	if err == nil {
		d.Pid = d.process.cmd.Process.Pid
		err = d.process.Await(ctx, Listening("unix", d.Socket))
	}
	if err != nil {
		return nil, fmt.Errorf("starting containerd in %q: %w", dir, errors.Join(err, d.process.Stop(syscall.SIGKILL)))
	}
	return d, nil
}

// prepare writes the configuration.
func prepare(dir, config string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	// As containerd does: root in a user namespace needs access to the root directory.
	if err := os.Chmod(dir, 0o711); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "containerd.toml"), []byte(config), 0o644)
}

// Stop stops the daemon and waits for it. Containers and their shims keep running.
func (d *Daemon) Stop() error { return d.process.Stop(syscall.SIGTERM) }

// Kill kills the daemon, to simulate a crash.
func (d *Daemon) Kill() error { return d.process.Stop(syscall.SIGKILL) }
