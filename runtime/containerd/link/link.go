// Package link connects to a containerd: one in this process, one in another process of
// ours, or a daemon.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/runonce/runonce/runtime/containerd/embed"
	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/payload"
	"github.com/runonce/runonce/runtime/containerd/spawn"
	"github.com/runonce/runonce/runtime/runtimeclass"
)

const (
	// answerTimeout bounds the wait for a containerd that does not answer. A machine that
	// boots may have much else to do.
	answerTimeout = 10 * time.Second
	// joinTimeout bounds the wait for another process of ours that is about to start
	// serving, or to end.
	joinTimeout  = 30 * time.Second
	stockRuntime = "io.containerd.runc.v2"
	stockProgram = "containerd-shim-runc-v2"
	// shimDir holds our programs, below the root.
	shimDir = "bin"
)

// Options say which containerd, and where things are. All is given and absolute but Address
// and Snapshotter.
type Options struct {
	Root        string
	State       string
	Namespace   string
	Address     string                 // of a daemon; empty means the embedded containerd
	Handlers    []runtimeclass.Handler // with absolute paths; one is the default
	Snapshotter string                 // empty means the best there is
	Log         *slog.Logger
}

// Session is one connection to one containerd.
type Session struct {
	*client.Client
	Server   *embed.Server // nil when another process serves
	unlock   func() error
	letGo    func() error       // of the shim's program
	runtimes map[string]Runtime // by handler
	// Shim is our program on disk. Logger says that it only takes the logs there, since
	// containerd is too old for it as a shim.
	Shim        string
	Logger      bool
	Snapshotter string
	// Spawn starts the shims; nil leaves that to a daemon.
	Spawn *spawn.Shims
}

// Tasks is containerd's task service.
func (s *Session) Tasks() tasksapi.TasksClient { return s.TaskService() }

// Snapshots is the snapshotter of all containers.
func (s *Session) Snapshots() snapshots.Snapshotter { return s.SnapshotService(s.Snapshotter) }

// Close ends the connection, and the server if it is in this process.
func (s *Session) Close() error {
	var errs []error
	if s.Client != nil && s.Server == nil {
		errs = append(errs, s.Client.Close())
	}
	if s.Server != nil {
		errs = append(errs, s.Server.Close())
	}
	if s.unlock != nil {
		errs = append(errs, s.unlock())
	}
	if s.letGo != nil {
		errs = append(errs, s.letGo())
	}
	return errors.Join(errs...)
}

// Connect finds a containerd: the daemon's, ours, or another process's of ours. An error wraps
// errs.ErrUnusable.
func Connect(ctx context.Context, o Options) (*Session, error) {
	s := &Session{Snapshotter: o.Snapshotter}
	var err error
	if o.Address != "" {
		err = s.dialDaemon(ctx, o.Address)
	} else {
		err = s.embedOrJoin(ctx, o)
	}
	if err == nil {
		err = s.prepare(o)
	}
	if err != nil {
		return nil, errs.Unusable{Cause: errors.Join(err, s.Close())}
	}
	if err := s.sweep(ctx, o); err != nil {
		o.Log.Warn("programs of other versions stay", "error", err)
	}
	return s, nil
}

// sweep removes the shims of other versions that nobody needs.
func (s *Session) sweep(ctx context.Context, o Options) error {
	var made map[string]bool // by what containers are made with
	var failed error
	err := payload.Sweep(filepath.Join(o.Root, shimDir), func(path string) bool {
		if made == nil {
			made = map[string]bool{}
			all, err := s.ContainerService().List(namespaces.WithNamespace(ctx, o.Namespace))
			failed = err
			for _, c := range all {
				made[c.Runtime.Name] = true
			}
		}
		return failed != nil || made[path]
	})
	return errors.Join(err, failed)
}

// Version returns that of the daemon at the socket. An error wraps errs.ErrUnusable.
func Version(ctx context.Context, socket string) (string, error) {
	s := &Session{}
	version, err := s.dial(ctx, socket)
	if err := errors.Join(err, s.Close()); err != nil {
		return "", errs.Unusable{Cause: err}
	}
	return version, nil
}

func (s *Session) dialDaemon(ctx context.Context, socket string) error {
	version, err := s.dial(ctx, socket)
	if err != nil {
		return err
	}
	major, minor, err := parseVersion(version)
	if err != nil {
		return fmt.Errorf("connecting to containerd at %q: %w", socket, err)
	}
	if major < 1 || major == 1 && minor < 6 {
		return fmt.Errorf("connecting to containerd at %q: version %s is older than 1.6", socket, version)
	}
	// The protocol between containerd and the start of a shim changed in 2.3.
	s.Logger = major < 2 || major == 2 && minor < 3
	return nil
}

// dial connects and asks for the version, which is the first real call.
func (s *Session) dial(ctx context.Context, socket string) (string, error) {
	if err := probe(ctx, socket); err != nil {
		return "", err
	}
	c, err := client.New(socket, client.WithTimeout(answerTimeout))
	if err != nil {
		return "", fmt.Errorf("connecting to containerd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	v, err := c.Version(ctx)
	if err != nil {
		return "", errors.Join(fmt.Errorf("whatever serves %q does not answer as containerd: %w", socket, errs.Native(err)), c.Close())
	}
	s.Client = c
	return v.Version, nil
}

func parseVersion(v string) (major, minor int, err error) {
	parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
	if len(parts) >= 2 {
		if major, err = strconv.Atoi(parts[0]); err == nil {
			minor, err = strconv.Atoi(parts[1])
		}
	}
	if err != nil || len(parts) < 2 {
		return 0, 0, fmt.Errorf("it calls its version %q", v)
	}
	return major, minor, nil
}

// embedOrJoin takes the lock and serves, or becomes the client of the process that has it.
// That one may be about to start or to end, so both are tried for a while.
func (s *Session) embedOrJoin(ctx context.Context, o Options) error {
	deadline := time.Now().Add(joinTimeout)
	for {
		unlock, err := embed.TryLock(o.Root)
		if err == nil {
			s.unlock = unlock
			s.Server, err = embed.Start(ctx, embed.Options{Root: o.Root, State: o.State, Namespace: o.Namespace, Log: o.Log})
			if err != nil {
				return err
			}
			s.Client = s.Server.Client
			return nil
		}
		if !errors.Is(err, embed.ErrLocked) {
			return err
		}
		socket := embed.Socket(o.State)
		if _, derr := s.dial(ctx, socket); derr == nil {
			return nil
		} else if time.Now().After(deadline) {
			return fmt.Errorf("%w, but not at %q: %w", err, socket, derr)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// prepare settles snapshotter, shim and runtime.
func (s *Session) prepare(o Options) error {
	if s.Snapshotter == "" {
		s.Snapshotter = "overlayfs"
		if s.Server != nil && !s.Server.HasSnapshotter(s.Snapshotter) {
			s.Snapshotter = "native"
		}
	}
	var err error
	if s.Shim, s.letGo, err = payload.Hold(filepath.Join(o.Root, shimDir)); err != nil {
		return err
	}
	if o.Address == "" {
		s.Spawn = &spawn.Shims{
			Program: s.Shim, Dir: embed.ShimDir(o.State), Address: embed.Socket(o.State), Namespace: o.Namespace,
		}
	}
	return s.setRuntimes(o)
}

// probe checks that something listens at the socket, which containerd's client does not.
func probe(ctx context.Context, socket string) error {
	info, err := os.Stat(socket)
	if err != nil {
		return fmt.Errorf("looking for containerd's socket: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("connecting to containerd: %q is not a socket", socket)
	}
	var d net.Dialer // a local connection is made at once or never
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("connecting to containerd: %w", err)
	}
	return conn.Close()
}
