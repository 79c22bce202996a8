package network

import "github.com/runonce/runonce/runtime/network/hostnet"

// HostIPs returns the machine's own addresses, for Options; see hostnet.IPs.
func HostIPs() ([]string, error) { return hostnet.IPs() }
