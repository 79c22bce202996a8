package nodeinfo

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Socket is a port that something listens on.
type Socket struct {
	Protocol string // TCP, UDP or SCTP
	Addr     netip.Addr
	Port     uint16
}

// The states of sockets that wait for whoever comes (include/net/tcp_states.h): a TCP
// socket that listens, and a UDP socket that is bound and not connected.
const (
	tcpListen = "0A"
	udpBound  = "07"
)

// Listening returns the ports of this machine's network that sockets listen on, in order.
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
		return compareSockets(a, b)
	})
	return slices.Compact(sockets), nil
}

func compareSockets(a, b Socket) int {
	if c := strings.Compare(a.Protocol, b.Protocol); c != 0 {
		return c
	}
	if c := int(a.Port) - int(b.Port); c != 0 {
		return c
	}
	return a.Addr.Compare(b.Addr)
}

// readSockets reads a table of sockets as the kernel writes it; one that the kernel does
// not have is empty.
func readSockets(fsys fs.FS, name, protocol, state string) ([]Socket, error) {
	data, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the sockets that listen: %w", err)
	}
	var sockets []Socket
	for l := range bytes.Lines(data) {
		f := strings.Fields(string(l))
		if len(f) < 4 || f[3] != state {
			continue // also the heading
		}
		addr, port, err := parseSocket(f[1])
		if err != nil {
			return nil, fmt.Errorf("reading the sockets that listen: /%s: %w", name, err)
		}
		sockets = append(sockets, Socket{protocol, addr, port})
	}
	return sockets, nil
}

// parseSocket reads an address like 0100007F:1F90: words of 32 bits in the machine's
// order, which is little-endian on all machines that this program is built for.
func parseSocket(s string) (netip.Addr, uint16, error) {
	host, rest, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.Addr{}, 0, fmt.Errorf("%q is no address", s)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	port, err := strconv.ParseUint(rest, 16, 16)
	if err != nil {
		return netip.Addr{}, 0, fmt.Errorf("%q is no address", s)
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr.Unmap(), uint16(port), nil
}

// readSCTP reads the endpoints of SCTP, whose table is unlike the others: the columns
// are ENDPT SOCK STY SST HBKT LPORT UID INODE LADDRS, and SST 10 listens.
func readSCTP(fsys fs.FS) ([]Socket, error) {
	data, err := fs.ReadFile(fsys, "proc/net/sctp/eps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the sockets that listen: %w", err)
	}
	var sockets []Socket
	for l := range bytes.Lines(data) {
		f := strings.Fields(string(l))
		if len(f) < 9 || f[3] != "10" {
			continue
		}
		port, err := strconv.ParseUint(f[5], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("reading the sockets that listen: /proc/net/sctp/eps: %q is no port", f[5])
		}
		for _, a := range f[8:] {
			addr, err := netip.ParseAddr(a)
			if err != nil {
				return nil, fmt.Errorf("reading the sockets that listen: /proc/net/sctp/eps: %w", err)
			}
			sockets = append(sockets, Socket{"SCTP", addr.Unmap(), uint16(port)})
		}
	}
	return sockets, nil
}
