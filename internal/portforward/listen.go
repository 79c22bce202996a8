package portforward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// Localhost stands for the loopback addresses of both families.
const Localhost = "localhost"

// maxTries bounds how often a port is looked for that is free on all addresses.
const maxTries = 20

// Listener accepts the connections of a mapping on one address.
type Listener struct {
	net.Listener
	Remote int32
}

// Target is a mapping with the number of the remote port.
type Target struct {
	Mapping
	Port int32
}

// Resolve finds the remote ports of mappings.
func Resolve(mappings []Mapping, to Destination) ([]Target, error) {
	targets := make([]Target, 0, len(mappings))
	for _, m := range mappings {
		port, err := to.Port(m.Remote)
		if err != nil {
			return nil, err
		}
		targets = append(targets, Target{m, port})
	}
	return targets, nil
}

// Listen listens on all ports, or on none. Those without an address are listened to on each of the addresses.
func Listen(ctx context.Context, targets []Target, addresses []string) ([]Listener, error) {
	var all []Listener
	for _, t := range targets {
		on := addresses
		if t.Address != "" {
			on = []string{t.Address}
		}
		port := t.Local
		if port == SamePort {
			port = int(t.Port)
		}
		listeners, err := listen(ctx, on, port)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		for _, l := range listeners {
			all = append(all, Listener{l, t.Port})
		}
	}
	return all, nil
}

func closeAll[T net.Listener](all []T) error {
	errs := make([]error, 0, len(all))
	for _, l := range all {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// listen listens on one port of several addresses: on any that is free on all of them if it is 0.
func listen(ctx context.Context, addresses []string, port int) ([]net.Listener, error) {
	for try := 1; ; try++ {
		listeners, err := listenOn(ctx, addresses, port)
		if port != 0 || !errors.Is(err, syscall.EADDRINUSE) || try == maxTries {
			return listeners, err
		}
	}
}

func listenOn(ctx context.Context, addresses []string, port int) (all []net.Listener, err error) {
	for _, address := range addresses {
		for _, ip := range ipsOf(address) {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
			if address == Localhost && len(all) > 0 && isAbsent(err) {
				continue
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("listening for connections: %w", err), closeAll(all))
			}
			all = append(all, l)
			if port == 0 {
				if a, ok := l.Addr().(*net.TCPAddr); ok {
					port = a.Port
				}
			}
		}
	}
	return all, nil
}

func ipsOf(address string) []string {
	if address == Localhost {
		return []string{"127.0.0.1", "::1"}
	}
	return []string{address}
}

// isAbsent says whether the machine has no such address, as of a family that is turned off.
func isAbsent(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}
