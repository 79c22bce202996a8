// Package portforward passes connections to ports of this machine on to ports of pods.
package portforward

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Mapping is a port of this machine, and the port of a pod or a Service that its connections go to.
type Mapping struct {
	// Address is an IP address of this machine; "" for the default.
	Address string
	// Local is a TCP port, 0 for any free one, and SamePort for the number of the remote one.
	Local int
	// Remote is a number from 1 on, or a name.
	Remote intstr.IntOrString
}

// SamePort as Mapping.Local stands for the number of the remote port.
const SamePort = -1

// Parse reads a mapping: [ADDRESS:]LOCAL[:REMOTE], or one of kubectl's forms: REMOTE, LOCAL:REMOTE or :REMOTE. An IPv6
// address is in brackets.
func Parse(text string) (Mapping, error) {
	m, err := parse(text)
	if err != nil {
		return Mapping{}, fmt.Errorf("%q: %w", text, err)
	}
	return m, nil
}

func parse(text string) (m Mapping, err error) {
	address, ports, err := splitAddress(text)
	if err != nil {
		return m, err
	}
	if address != "" {
		if m.Address, err = ParseAddress(address); err != nil {
			return m, err
		}
	}
	local, remote, both := strings.Cut(ports, ":")
	if !both {
		m.Remote, err = parseRemote(ports)
		m.Local = SamePort
		return m, err
	}
	if m.Remote, err = parseRemote(remote); err != nil || local == "" {
		return m, err
	}
	m.Local, err = parsePort(local, 0)
	return m, err
}

// splitAddress returns the address, "" for none, and what comes after it: PORT, LOCAL:REMOTE or :REMOTE.
func splitAddress(text string) (address, ports string, err error) {
	if rest, ok := strings.CutPrefix(text, "["); ok {
		address, ports, ok = strings.Cut(rest, "]:")
		if !ok || net.ParseIP(address) == nil {
			return "", "", errors.New("must begin with an IPv6 address, as in [::1]:8080:80")
		}
		return address, ports, nil
	}
	switch fields := strings.Split(text, ":"); len(fields) {
	case 1:
		return "", text, nil
	case 2:
		if _, err := strconv.Atoi(fields[0]); err == nil || fields[0] == "" {
			return "", text, nil
		}
		return fields[0], fields[1], nil
	case 3:
		if fields[0] == "" {
			return "", "", errors.New("has an empty address")
		}
		return fields[0], fields[1] + ":" + fields[2], nil
	}
	return "", "", errors.New("must be [ADDRESS:]LOCAL[:REMOTE], with an IPv6 address in brackets")
}

// ParseAddress reads an address to listen on: an IP address, or "localhost".
func ParseAddress(text string) (string, error) {
	if text != Localhost && net.ParseIP(text) == nil {
		return "", fmt.Errorf("address %q: must be an IP address or %s", text, Localhost)
	}
	return text, nil
}

func parseRemote(text string) (intstr.IntOrString, error) {
	if len(validation.IsValidPortName(text)) == 0 {
		return intstr.FromString(text), nil
	}
	n, err := parsePort(text, 1)
	return intstr.FromInt(n), err
}

func parsePort(text string, lowest int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < lowest || n > 65535 {
		return 0, fmt.Errorf("port %q: must be a number from %d to 65535", text, lowest)
	}
	return n, nil
}
