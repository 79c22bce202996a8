// Package sctptest connects by SCTP in tests, if the kernel has it: package net does not.
package sctptest

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/network/namespaces"
)

// Port is that of servers.
const Port = 9

const greeting = "hello"

// Serve greets the first n clients that connect to Port in the network namespace, and returns false if the kernel has no
// SCTP. The test waits for the clients in its end.
func Serve(t *testing.T, netns string, n int) bool {
	t.Helper()
	listener, err := socket(netns)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	fd := int(listener.Fd())
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: Port}), unix.Listen(fd, 5)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			conn, _, err := unix.Accept(fd)
			if err != nil {
				t.Errorf("accepting: %v", err)
				return
			}
			_, _ = unix.Write(conn, []byte(greeting))
			_ = unix.Close(conn)
		}
	}()
	t.Cleanup(func() {
		<-done
		_ = listener.Close()
	})
	return true
}

// WantGreeting connects from a network namespace, "" for that of the process, to an address at which a server is.
func WantGreeting(t *testing.T, netns string, at netip.AddrPort) {
	t.Helper()
	client, err := socket(netns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	buf := make([]byte, 100)
	n := 0
	if err = unix.Connect(int(client.Fd()), &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err == nil {
		n, err = unix.Read(int(client.Fd()), buf)
	}
	if err != nil || string(buf[:max(n, 0)]) != greeting {
		t.Errorf("from %q to %s: got %q, %v", netns, at, buf[:max(n, 0)], err)
	}
}

// socket makes a socket with a timeout.
func socket(netns string) (*os.File, error) {
	fd := -1
	open := func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	}
	if err := namespaces.Inside([]namespaces.Pin{{Kind: namespaces.Net, Path: netns}}, open); err != nil {
		return nil, err
	}
	var err error
	for _, opt := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		err = errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &unix.Timeval{Sec: 60}))
	}
	return os.NewFile(uintptr(fd), "sctp"), err
}
