package nodeinfo

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Socket is a listening socket.
type Socket struct {
	Protocol string // TCP, UDP or SCTP
	Addr     netip.Addr
	Port     uint16
	Inode    uint64 // by which Holders finds its processes, 0 if not known
}

// The states of listening sockets (include/net/tcp_states.h): TCP_LISTEN, and TCP_CLOSE for a
// UDP socket that is bound and not connected.
const (
	tcpListen = "0A"
	udpBound  = "07"
)

// Listening returns the listening sockets of this machine's network namespace, sorted.
func Listening(fsys fs.FS) ([]Socket, error) {
	var sockets []Socket
	for _, table := range []struct{ file, protocol, state string }{
		{"tcp", "TCP", tcpListen},
		{"tcp6", "TCP", tcpListen},
		{"udp", "UDP", udpBound},
		{"udp6", "UDP", udpBound},
	} {
		found, err := readSockets(fsys, "proc/net/"+table.file, table.protocol, table.state)
		if err != nil {
			return nil, err
		}
		sockets = append(sockets, found...)
	}
	sctp, err := readSCTP(fsys)
	if err != nil {
		return nil, err
	}
	sockets = append(sockets, sctp...)
	slices.SortFunc(sockets, func(a, b Socket) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), a.Addr.Compare(b.Addr), cmp.Compare(a.Inode, b.Inode))
	})
	return slices.Compact(sockets), nil
}

// readTable reads one of the kernel's tables of sockets; a missing one is empty.
func readTable(fsys fs.FS, name string) ([]byte, error) {
	data, err := fs.ReadFile(fsys, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the listening sockets: %w", err)
	}
	return data, nil
}

// readSockets returns the sockets of a table that have the state.
func readSockets(fsys fs.FS, name, protocol, state string) ([]Socket, error) {
	data, err := readTable(fsys, name)
	if err != nil {
		return nil, err
	}
	var sockets []Socket
	for l := range bytes.Lines(data) {
		f := strings.Fields(string(l))
		if len(f) < 4 || f[3] != state {
			continue // also the heading
		}
		addr, port, err := parseSocket(f[1])
		if err != nil {
			return nil, fmt.Errorf("reading the listening sockets: /%s: %w", name, err)
		}
		sockets = append(sockets, Socket{protocol, addr, port, inode(f, 9)})
	}
	return sockets, nil
}

// inode returns the inode in a column of a table, 0 if there is none.
func inode(fields []string, column int) uint64 {
	if len(fields) <= column {
		return 0
	}
	n, _ := strconv.ParseUint(fields[column], 10, 64)
	return n
}

// parseSocket reads an address like 0100007F:1F90: words of 32 bits in the machine's byte
// order, which is little-endian on all machines that this program is built for.
func parseSocket(s string) (netip.Addr, uint16, error) {
	host, rest, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.Addr{}, 0, fmt.Errorf("%q is not an address", s)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	port, err := strconv.ParseUint(rest, 16, 16)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%q is not an address", s)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr.Unmap(), uint16(port), nil
}

// readSCTP reads the endpoints of SCTP. The columns of their table are ENDPT SOCK STY SST HBKT
// LPORT UID INODE LADDRS, and a socket of SST 10 listens.
func readSCTP(fsys fs.FS) ([]Socket, error) {
	data, err := readTable(fsys, "proc/net/sctp/eps")
	if err != nil {
		return nil, err
	}
	var sockets []Socket
	for l := range bytes.Lines(data) {
		f := strings.Fields(string(l))
		if len(f) < 9 || f[3] != "10" {
			continue
		}
		port, err := strconv.ParseUint(f[5], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("reading the listening sockets: /proc/net/sctp/eps: %q is not a port", f[5])
		}
		for _, a := range f[8:] {
			addr, err := netip.ParseAddr(a)
			if err != nil {
				return nil, fmt.Errorf("reading the listening sockets: /proc/net/sctp/eps: %w", err)
			}
			sockets = append(sockets, Socket{"SCTP", addr.Unmap(), uint16(port), inode(f, 7)})
		}
	}
	return sockets, nil
}
