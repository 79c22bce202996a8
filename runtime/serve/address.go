package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Address is where a server listens: a socket in the file system, or a TCP port.
type Address struct {
	Socket string // its path; "" for TCP
	TCP    string // HOST:PORT
}

// ParseAddress reads "unix:PATH", "unix://PATH" or "HOST:PORT".
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		path = strings.TrimPrefix(path, "//")
		if !filepath.IsAbs(path) {
			return Address{}, fmt.Errorf("%q: the path of a socket must be absolute", text)
		}
		return Address{Socket: path}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return Address{}, fmt.Errorf("%q is neither unix:PATH nor HOST:PORT", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return Address{}, fmt.Errorf("%q: no port %q", text, port)
	}
	if host == "" {
		return Address{}, fmt.Errorf("%q has no host; 0.0.0.0 and [::] are all addresses of this machine", text)
	}
	return Address{TCP: text}, nil
}

// String returns the address as ParseAddress reads it.
func (a Address) String() string {
	if a.Socket != "" {
		return "unix:" + a.Socket
	}
	return a.TCP
}

// IsLoopback says whether only this machine can connect: the host is an address of its own, or its name for itself.
func (a Address) IsLoopback() bool {
	host, _, _ := net.SplitHostPort(a.TCP)
	ip := net.ParseIP(host)
	return a.Socket != "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// dialTimeout is how long it may take to find out whether a socket has a server.
const dialTimeout = time.Second

// listen opens the address. Only its owner may connect to a socket.
func (a Address) listen(ctx context.Context) (net.Listener, error) {
	var c net.ListenConfig
	if a.Socket == "" {
		return c.Listen(ctx, "tcp", a.TCP)
	}
	if err := os.MkdirAll(filepath.Dir(a.Socket), 0o700); err != nil {
		return nil, err
	}
	// Nobody else can get at a socket in a private directory before it has its permissions.
	private, err := os.MkdirTemp(filepath.Dir(a.Socket), ".serve-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	path := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(path, 0o600), a.claim(ctx, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return socket{l, a.Socket}, nil
}

// claim moves a new socket to the address, unless another server answers there.
func (a Address) claim(ctx context.Context, path string) error {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "unix", a.Socket)
	if err == nil {
		return errors.Join(errors.New("another server listens there"), conn.Close())
	}
	if info, err := os.Lstat(a.Socket); err == nil && info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket", a.Socket)
	}
	return os.Rename(path, a.Socket)
}

// socket removes its file when it is closed.
type socket struct {
	*net.UnixListener
	path string
}

func (s socket) Close() error { return errors.Join(os.Remove(s.path), s.UnixListener.Close()) }
