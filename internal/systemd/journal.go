// Package systemd sends messages to systemd, a datagram for each: entries to the journal, in its native
// protocol, and notifications to the service manager. The shim uses it, so it needs nothing but system calls.
package systemd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// JournalSocket is where the journal of the machine listens.
const JournalSocket = "/run/systemd/journal/socket"

// The priorities of entries, as of syslog.
const (
	PriorityError   = "3"
	PriorityWarning = "4"
	PriorityInfo    = "6"
	PriorityDebug   = "7"
)

// patience is how long a message may take whose receiver reads nothing.
const patience = time.Second

// Field is a part of an entry. The name has capital letters, digits and underscores.
type Field struct{ Name, Value string }

// Conn sends messages to a socket. It is safe for concurrent use.
type Conn struct {
	fd int
	to syscall.SockaddrUnix
}

// Open returns a connection to a socket of systemd, where nobody needs to listen yet.
func Open(socket string) (*Conn, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket for systemd: %w", err)
	}
	timeout := syscall.NsecToTimeval(patience.Nanoseconds())
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &timeout); err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("opening a socket for systemd: %w", err)
	}
	return &Conn{fd: fd, to: syscall.SockaddrUnix{Name: socket}}, nil
}

// Check returns an error unless a journal, or the service manager, listens at the socket.
func Check(socket string) error {
	c, err := Open(socket)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := syscall.Connect(c.fd, &c.to); err != nil {
		return fmt.Errorf("no journal listens at %s: %w", socket, err)
	}
	return nil
}

// Send sends an entry. The journal does not read ones that are much larger than 100 kB.
func (c *Conn) Send(fields ...Field) error { return c.SendEncoded(Encode(nil, fields...)) }

// SendEncoded sends an entry that Encode has returned. A signal that comes while the receiver reads
// nothing does not end the wait.
func (c *Conn) SendEncoded(entry []byte) error {
	for {
		if err := syscall.Sendto(c.fd, entry, syscall.MSG_NOSIGNAL, &c.to); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Close closes the connection.
func (c *Conn) Close() error { return syscall.Close(c.fd) }

// Encode appends fields to an entry.
func Encode(entry []byte, fields ...Field) []byte {
	for _, f := range fields {
		entry = append(entry, f.Name...)
		if strings.Contains(f.Value, "\n") {
			entry = append(entry, '\n')
			entry = binary.LittleEndian.AppendUint64(entry, uint64(len(f.Value)))
		} else {
			entry = append(entry, '=')
		}
		entry = append(entry, f.Value...)
		entry = append(entry, '\n')
	}
	return entry
}
