package backend

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// FreePort returns a port on which nobody listens at the address of this machine, "" for all. The kernel chooses it.
func FreePort(ctx context.Context, protocol v1.Protocol, ip string) (int32, error) {
	var c net.ListenConfig
	address := net.JoinHostPort(ip, "0")
	if protocol == v1.ProtocolUDP {
		l, err := c.ListenPacket(ctx, "udp", address)
		if err != nil {
			return 0, err
		}
		return closed(l, l.LocalAddr())
	}
	l, err := c.Listen(ctx, "tcp", address) // for SCTP as well, which has not so many users
	if err != nil {
		return 0, err
	}
	return closed(l, l.Addr())
}

// closed closes what listens at the address, and returns its port.
func closed(l io.Closer, at net.Addr) (int32, error) {
	port, err := netip.ParseAddrPort(at.String())
	return int32(port.Port()), errors.Join(err, l.Close())
}
