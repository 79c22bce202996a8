package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	socketName  = "containerd.sock"
	ttrpcSuffix = ".ttrpc"

	// closeTimeout bounds the wait for the calls of clients when the server closes.
	closeTimeout = 10 * time.Second

	// pingInterval is how often a client asks whether the server still responds, and pingTimeout
	// how long it waits for that: calls to a process that is stopped would hang for ever.
	pingInterval = 10 * time.Second
	pingTimeout  = 10 * time.Second

	// maxDir is how long the directory of the sockets may be, in bytes: the kernel allows
	// 107 for a path, and the shims' names take 67.
	maxDir = 40
)

// TasksDir returns the directory of the bundles of the server with this state directory.
func TasksDir(state string) string { return filepath.Join(state, "io.containerd.runtime.v2.task") }

// Socket returns the path at which the server with this state directory serves.
func Socket(state string) string { return filepath.Join(socketDir(state), socketName) }

// RuntimeRoot returns the directory in which the OCI runtimes keep their state, below a directory for
// each namespace.
func RuntimeRoot(state string) string { return filepath.Join(state, "runc") }

// shimDir returns the directory of the shims' sockets.
func shimDir(state string) string { return filepath.Join(socketDir(state), "s") }

// AttachSocket returns the path of the socket at which the streams of a container can be attached to.
func AttachSocket(state, id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(socketDir(state), "a", hex.EncodeToString(sum[:8]))
}

// socketDir returns the state directory, or a shorter path when that is too long for a
// socket.
func socketDir(state string) string {
	if len(state) <= maxDir {
		return state
	}
	sum := sha256.Sum256([]byte(state))
	return "/run/runonce-" + hex.EncodeToString(sum[:6])
}

// listeners are the two sockets: gRPC for other processes, ttrpc for the shims' events.
type listeners struct {
	grpc  *grpc.Server
	ttrpc *ttrpc.Server
	done  sync.WaitGroup
}

// DialOptions are for the clients of a Server.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout, PermitWithoutStream: true})}
}

// serve serves the plugins' services at the socket.
func serve(ctx context.Context, set *plugin.Set, socket string) (*listeners, error) {
	l := &listeners{grpc: grpc.NewServer(
		// So that no call of a client is still at work when the next server starts.
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(defaults.DefaultMaxRecvMsgSize),
		grpc.MaxSendMsgSize(defaults.DefaultMaxSendMsgSize),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval / 2, PermitWithoutStream: true}),
	)}
	var err error
	if l.ttrpc, err = ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser())); err != nil {
		return nil, fmt.Errorf("serving the shims: %w", err)
	}
	if err := l.register(set); err != nil {
		return nil, err
	}
	shims, err := listen(ctx, socket+ttrpcSuffix)
	if err != nil {
		return nil, err
	}
	clients, err := listen(ctx, socket)
	if err != nil {
		return nil, errors.Join(err, shims.Close())
	}
	// Both return when the server is closed.
	l.done.Go(func() { _ = l.ttrpc.Serve(context.WithoutCancel(ctx), shims) })
	l.done.Go(func() { _ = l.grpc.Serve(clients) })
	return l, nil
}

func (l *listeners) register(set *plugin.Set) error {
	for _, p := range set.GetAll() {
		if p.Registration.Type != plugins.GRPCPlugin {
			continue
		}
		instance, err := p.Instance()
		if err != nil {
			continue
		}
		if s, ok := instance.(interface{ Register(*grpc.Server) error }); ok {
			if err := s.Register(l.grpc); err != nil {
				return fmt.Errorf("serving %s: %w", p.Registration.URI(), err)
			}
		}
		if s, ok := instance.(interface{ RegisterTTRPC(*ttrpc.Server) error }); ok {
			if err := s.RegisterTTRPC(l.ttrpc); err != nil {
				return fmt.Errorf("serving %s to the shims: %w", p.Registration.URI(), err)
			}
		}
	}
	return nil
}

// close cuts the connections and waits until the calls of clients have returned, but not longer
// than the timeout: a call may hang in an OCI runtime.
func (l *listeners) close(timeout time.Duration) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		l.grpc.Stop()
	}()
	var err error
	select {
	case <-stopped:
	case <-time.After(timeout):
		err = fmt.Errorf("closing containerd's socket: a call of another process has not ended within %s", timeout)
	}
	_ = l.ttrpc.Close()
	if err == nil {
		l.done.Wait()
	}
	return err
}

// listen replaces a socket that a dead process left. The caller holds the lock.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("serving containerd: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protecting the socket: %w", err), l.Close())
	}
	return l, nil
}
