package shortcuts

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
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"

	"github.com/runonce/runonce/runtime/containerd/shimbinary"
)

const (
	// Version is that of the task API that our shim serves.
	Version = 3

	// protocol prefixes the address for containerd.
	protocol = "ttrpc+unix://"
	// answerTimeout bounds the wait for a shim's answer.
	answerTimeout = 10 * time.Second
)

// Shims starts and removes the shims of the embedded containerd.
type Shims struct {
	// Program is the shim's binary, which must stay where it is.
	Program string
	// Dir is the directory of the shims' sockets.
	Dir string
	// Address is containerd's socket; the one for the shims has the suffix .ttrpc.
	Address   string
	Namespace string
	// Bundles is the directory of the bundles of all namespaces.
	Bundles string
	// RuntimeRoot is the directory in which the OCI runtimes keep their state, below a
	// directory for each namespace.
	RuntimeRoot string
}

// Ensure returns the address of the group's shim, and whether it had to be started. id is
// the shim's name in the process list. Calls for one group must not overlap.
func (s Shims) Ensure(ctx context.Context, group, id string) (address string, fresh bool, err error) {
	path := s.path(group)
	conn, err := dial(ctx, path)
	if err == nil {
		return protocol + path, false, conn.Close()
	}
	if !dead(err) {
		return "", false, fmt.Errorf("connecting to the shim: %w", err)
	}
	if err := s.start(ctx, path, id); err != nil {
		return "", false, fmt.Errorf("starting a shim: %w", err)
	}
	return protocol + path, true, nil
}

// Release ends the group's shim when it has no containers.
func (s Shims) Release(ctx context.Context, group string) { release(ctx, s.path(group)) }

// path returns the socket's path as containerd would name it (pkg/shim.CreateSocketAddress),
// for tools that look for it.
func (s Shims) path(group string) string {
	sum := sha256.Sum256([]byte(filepath.Join(s.Address, s.Namespace, group)))
	return filepath.Join(s.Dir, fmt.Sprintf("%x", sum))
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// dead reports whether the error of dial says that nobody listens: a shim that does must not
// lose its socket because the connection failed for another reason.
func dead(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

func (s Shims) start(ctx context.Context, path, id string) error {
	if err := os.MkdirAll(s.Dir, 0o711); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	// The socket's path belongs to the shim from now on.
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	f, err := l.File()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	// It does not end with the context: the shim outlives this program.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.Program, "-namespace", s.Namespace, "-id", id, "-address", s.Address)
	cmd.Dir = "/"
	// Nothing of the user's environment: it may contain secrets, and the shim runs for long.
	cmd.Env = []string{
		"PATH=" + shimbinary.SearchPath,
		"TTRPC_ADDRESS=" + s.Address + ".ttrpc",
		"GOMAXPROCS=1",
	}
	cmd.ExtraFiles = []*os.File{f}
	// In a session of its own, so that neither Ctrl-C nor the terminal's end reaches the containers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	reap(cmd.Process)
	return nil
}

func release(ctx context.Context, path string) {
	conn, err := dial(ctx, path)
	if err != nil {
		if dead(err) {
			_ = os.Remove(path) // the next one makes it again
		}
		return
	}
	c := ttrpc.NewClient(conn)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	// A shim that ends may do so before it answers.
	_, _ = taskapi.NewTTRPCTaskClient(c).Shutdown(ctx, &taskapi.ShutdownRequest{ID: "release", Now: true})
}
