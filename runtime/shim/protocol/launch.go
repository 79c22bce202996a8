package protocol

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const (
	// APIVersion is that of the task API that the shim serves.
	APIVersion = 3
	// GroupAnnotation is where the spec of a container names its group. A group has one shim.
	GroupAnnotation = "io.containerd.runc.v2.group"
	// AddressEnv is where a shim finds the address of the socket for its events.
	AddressEnv = "TTRPC_ADDRESS"
	// ListenerFD is the descriptor of the listening socket that a shim inherits.
	ListenerFD = 3
	// RemoveBundlesArg is an argument for Shim.RemoveBundles.
	RemoveBundlesArg = "remove-bundles"
	// SearchPath is the PATH of a shim unless there is another one.
	SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// SocketPath returns the path of a group's socket below dir, as containerd names it
// (pkg/shim.CreateSocketAddress). address is containerd's.
func SocketPath(dir, address, namespace, group string) string {
	sum := sha256.Sum256([]byte(filepath.Join(address, namespace, group)))
	return filepath.Join(dir, fmt.Sprintf("%x", sum))
}

// Dial connects to the shim, or the containerd, that listens at the path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// NotListening reports whether the error of Dial says that nobody listens: a shim that does must
// not lose its socket because the connection failed for another reason.
func NotListening(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// Shim says how to start one.
type Shim struct {
	Program   string
	Namespace string
	ID        string // its name in the process list
	Address   string // containerd's
	Events    string // the address of the socket for its events
	Path      string // of its own socket, at which nobody listens
	Search    string // its PATH
	// RemoveBundles says that the shim removes the bundle of each container that it deletes, which containerd
	// otherwise does.
	RemoveBundles bool
}

// Start starts the shim. It runs on after this program; the caller owns the process.
func Start(ctx context.Context, s Shim) (*os.Process, error) {
	if err := os.Remove(s.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.Path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// The socket's path belongs to the shim from now on.
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	p, err := s.spawn(ctx, l)
	if err != nil {
		return nil, errors.Join(err, os.Remove(s.Path))
	}
	return p, nil
}

func (s Shim) spawn(ctx context.Context, l *net.UnixListener) (*os.Process, error) {
	f, err := l.File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if err := os.Chmod(s.Path, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.Program, "-namespace", s.Namespace, "-id", s.ID, "-address", s.Address)
	if s.RemoveBundles {
		cmd.Args = append(cmd.Args, "-"+RemoveBundlesArg)
	}
	cmd.Dir = "/"
	// Nothing else of the environment: it may contain secrets, and the shim runs for long.
	cmd.Env = []string{"PATH=" + s.Search, AddressEnv + "=" + s.Events, "GOMAXPROCS=1"}
	cmd.ExtraFiles = []*os.File{f}
	// In a session of its own, so that neither Ctrl-C nor the terminal's end reaches the containers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd.Process, nil
}
