package probe

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/runonce/runonce/runtime/network/namespaces"
)

// dial connects to an address from inside the pod's network namespace.
func (t Target) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := Dial(ctx, t.NetNS, network, address)
	if err != nil {
		return nil, err
	}
	if c, ok := conn.(*net.TCPConn); ok {
		// Frequent probes must not leave sockets in TIME_WAIT (pkg/probe/dialer_others.go).
		if err := c.SetLinger(1); err != nil {
			return nil, errors.Join(fmt.Errorf("setting linger: %w", err), c.Close())
		}
	}
	return conn, nil
}

// Dial connects to an address from inside a network namespace, empty for the host's.
func Dial(ctx context.Context, netNS, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	// A name is looked up outside: the lookup and the attempts to connect to several
	// addresses run in goroutines of their own, which would not be in the namespace.
	ips := []string{host}
	if net.ParseIP(host) == nil {
		if ips, err = net.DefaultResolver.LookupHost(ctx, host); err != nil {
			return nil, err
		}
	}
	var conn net.Conn
	err = namespaces.Inside([]namespaces.Pin{{Kind: namespaces.Net, Path: netNS}}, func() error {
		var errs []error
		for _, ip := range ips {
			c, err := (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(ip, port))
			if err == nil {
				conn = c
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	return conn, err
}
