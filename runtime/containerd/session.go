package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
)

const (
	// answerTimeout bounds the wait for a containerd that does not answer. A machine that
	// boots may be busy.
	answerTimeout = 10 * time.Second
	// joinTimeout bounds the wait for another process of ours that is about to start
	// serving, or to end.
	joinTimeout = 30 * time.Second
	// stoppedTimeout bounds the wait for such a process that a signal has stopped.
	stoppedTimeout = 8 * time.Second
)

// session is one connection to one containerd: in this process, in another process of ours, or
// a daemon.
type session struct {
	images.Conn
	server   *server.Server // nil when another process serves
	closers  []func() error
	runtimes map[string]runtimeConfig // by handler
	shim     string                   // path of the shim's binary
	// shims starts the shims; nil leaves that to a daemon.
	shims *server.Shims
}

// Tasks returns containerd's task service.
func (s *session) Tasks() tasksapi.TasksClient { return s.TaskService() }

// Close ends the connection, and the server if it is in this process.
func (s *session) Close() error {
	errs := make([]error, 0, len(s.closers))
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// connect connects to the daemon, or serves, or joins the process of ours that serves. An error
// wraps ErrUnusable.
func connect(ctx context.Context, o Options) (*session, error) {
	s := &session{}
	var err error
	if o.Address != "" {
		err = s.dialDaemon(ctx, o.Address)
	} else {
		err = s.embedOrJoin(ctx, o)
	}
	if err == nil {
		err = s.configure(namespaces.WithNamespace(ctx, o.Namespace), o)
	}
	if err != nil {
		return nil, failure.Unusable{Cause: errors.Join(err, s.Close())}
	}
	return s, nil
}

// usedShims returns the shims of the known containers.
func (s *session) usedShims(ctx context.Context) (map[string]bool, error) {
	all, err := s.ContainerService().List(ctx)
	used := map[string]bool{}
	for _, c := range all {
		used[c.Runtime.Name] = true
	}
	return used, err
}

// daemonVersion returns the version of the daemon at the socket. An error wraps ErrUnusable.
func daemonVersion(ctx context.Context, socket string) (string, error) {
	s := &session{}
	running, err := s.dial(ctx, socket)
	if err := errors.Join(err, s.Close()); err != nil {
		return "", failure.Unusable{Cause: err}
	}
	return running, nil
}

func (s *session) dialDaemon(ctx context.Context, socket string) error {
	running, err := s.dial(ctx, socket)
	if err != nil {
		return err
	}
	if err := checkVersion(running); err != nil {
		return fmt.Errorf("connecting to containerd at %q: %w", socket, err)
	}
	return nil
}

func checkVersion(of string) error {
	v, err := version.ParseGeneric(of)
	if err != nil {
		return fmt.Errorf("unrecognized version %q", of)
	}
	if !v.AtLeast(version.MajorMinor(1, 6)) {
		return fmt.Errorf("version %s is older than 1.6", of)
	}
	return nil
}

// dial connects and asks for the version, which is the first real call.
func (s *session) dial(ctx context.Context, socket string, opts ...client.Opt) (string, error) {
	if err := probe(ctx, socket); err != nil {
		return "", err
	}
	c, err := client.New(socket, append(opts, client.WithTimeout(answerTimeout))...)
	if err != nil {
		return "", fmt.Errorf("connecting to containerd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	v, err := c.Version(ctx)
	if err != nil {
		return "", errors.Join(fmt.Errorf("%q does not answer as containerd: %w", socket, images.NativeError(err)), c.Close())
	}
	s.Client, s.closers = c, append(s.closers, c.Close)
	return v.Version, nil
}

// embedOrJoin takes the lock and serves, or becomes a client of the process that has it. That
// process may be starting or ending, so both are tried for a while.
func (s *session) embedOrJoin(ctx context.Context, o Options) error {
	deadline := time.Now().Add(joinTimeout)
	runs := time.Now() // when the process that serves was last seen not to be stopped
	for {
		unlock, err := server.TryLock(o.Root)
		if err == nil {
			s.closers = append(s.closers, unlock)
			s.server, err = server.Start(ctx, server.Options{Root: o.Root, State: o.State, Namespace: o.Namespace, Log: o.Log, Stores: o.Looks})
			if err != nil {
				return err
			}
			s.Client, s.closers = s.server.Client, append(s.closers, s.server.Close)
			return nil
		}
		if !errors.Is(err, server.ErrLocked) {
			return err
		}
		socket, holder := server.Socket(o.State), server.Holder(o.Root)
		if holder.Stopped {
			if time.Since(runs) > stoppedTimeout {
				return notResponding(holder, o.Root)
			}
		} else if _, derr := s.dial(ctx, socket, client.WithExtraDialOpts(server.DialOptions())); derr == nil {
			return nil
		} else if runs = time.Now(); runs.After(deadline) {
			return fmt.Errorf("%w (%s), but not at %q: %w", err, holder, socket, derr)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// notResponding is the error for a process of ours that serves the root and is stopped.
func notResponding(h flock.Holder, root string) error {
	return fmt.Errorf("%s (pid %d), which serves containerd for %s, does not respond: it is stopped; resume it with kill -CONT %d or end it with kill -9 %d",
		h.Command, h.PID, root, h.PID, h.PID)
}

// configure chooses the snapshotter, unpacks the shim and configures the runtimes.
func (s *session) configure(ctx context.Context, o Options) error {
	s.Snapshotter = "overlayfs"
	if o.Address == "" && !server.HasOverlays(o.Root) {
		s.Snapshotter = "native"
	}
	used := func() (map[string]bool, error) { return s.usedShims(ctx) }
	shim, release, err := holdShim(filepath.Join(o.Root, "bin"), used, o.Log)
	if err != nil {
		return err
	}
	s.shim, s.closers = shim, append(s.closers, release)
	if o.Address == "" {
		s.shims = &server.Shims{State: o.State, Namespace: o.Namespace, Program: s.shim, Adopt: o.AdoptShim}
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
	var d net.Dialer // a local connection needs no timeout
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("connecting to containerd: %w", err)
	}
	return conn.Close()
}
