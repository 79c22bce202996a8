package shim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

const (
	// defaultSockets is the directory of the sockets unless containerd says another one.
	defaultSockets = "/run/containerd/s"
	maxInput       = 10 << 20
)

// start is the command "start": it starts the shim of a task's group unless it runs, and prints
// its address. The bundle is the working directory.
func start(ctx context.Context, a arguments) error {
	input, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput))
	if err != nil {
		return err
	}
	// A containerd before 2.3 sends other input, the options alone.
	var p ttrpc.BootstrapParams
	known := ttrpc.Unmarshal(input, &p) == nil && p.ID == a.id && p.Namespace == a.namespace
	var o ttrpc.Options
	if known {
		for _, e := range p.Extensions {
			if strings.HasSuffix(e.Value.TypeURL, "containerd.runc.v1.Options") {
				err = errors.Join(err, ttrpc.Unmarshal(e.Value.Value, &o))
			}
		}
	} else {
		p = ttrpc.BootstrapParams{}
	}
	spec, serr := oci.ReadSpec(".")
	if err := errors.Join(err, serr); err != nil {
		return err
	}
	dir := cmp.Or(p.SocketDir, defaultSockets)
	group := cmp.Or(spec.Annotations[protocol.GroupAnnotation], spec.Annotations["io.kubernetes.cri.sandbox-id"], a.id)
	path := protocol.SocketPath(dir, a.address, a.namespace, group)
	if err := ensure(ctx, path, a, o.ShimCgroup); err != nil {
		return err
	}
	address := "unix://" + path
	if !known {
		if err := os.WriteFile("address", []byte(address), 0o600); err != nil {
			return err
		}
		_, err = os.Stdout.WriteString(address)
		return err
	}
	_, err = os.Stdout.Write(ttrpc.Marshal(&ttrpc.BootstrapResult{Version: protocol.APIVersion, Address: address, Protocol: "ttrpc"}))
	return err
}

// ensure starts a shim that listens at the path, unless one does.
func ensure(ctx context.Context, path string, a arguments, cgroup string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Containers of a pod may be created at the same time.
	lock, err := flock.Open(filepath.Dir(path), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	conn, err := protocol.Dial(ctx, path)
	if err == nil {
		return conn.Close()
	}
	if !protocol.NotListening(err) {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := protocol.Start(ctx, protocol.Shim{
		Program: self, Namespace: a.namespace, ID: a.id, Address: a.address, Path: path,
		Events: os.Getenv(protocol.AddressEnv), Search: cmp.Or(os.Getenv("PATH"), protocol.SearchPath),
	})
	if err != nil {
		return err
	}
	if err := errors.Join(joinCgroup(cgroup, p.Pid), raiseOOMScore(p.Pid)); err != nil {
		return errors.Join(err, p.Kill(), os.Remove(path))
	}
	return p.Release()
}

// joinCgroup moves a process to a cgroup, in each hierarchy that has it.
func joinCgroup(path string, pid int) error {
	if path == "" {
		return nil
	}
	found := false
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		files, err := filepath.Glob(filepath.Join(pattern, path, "cgroup.procs"))
		if err != nil {
			return err
		}
		for _, name := range files {
			if err := os.WriteFile(name, []byte(strconv.Itoa(pid)), 0); err != nil {
				return fmt.Errorf("joining cgroup %q: %w", path, err)
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("joining cgroup %q: %w", path, fs.ErrNotExist)
	}
	return nil
}

// raiseOOMScore has the kernel kill a shim rather than containerd.
func raiseOOMScore(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", os.Getppid()))
	if err != nil {
		return err
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(min(score+1, 1000))), 0)
}

func printVersion() error {
	version := "unknown"
	if b, ok := debug.ReadBuildInfo(); ok {
		version = b.Main.Version
	}
	_, err := fmt.Printf("runonce-shim %s\n", version)
	return err
}
