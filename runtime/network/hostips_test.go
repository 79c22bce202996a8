package network

import (
	"net"
	"testing"
)

// The machine's network is unknown here, but what is reported of it must be true.
func TestHostIPs(t *testing.T) {
	t.Parallel()
	ips, err := HostIPs()
	if err != nil {
		t.Fatal(err)
	}
	if len(ips) == 0 {
		t.Fatal("no address")
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			own[n.IP.String()] = true
		}
	}
	for _, ip := range ips {
		if !own[ip] {
			t.Errorf("%s is not one of the machine's addresses %v", ip, own)
		}
	}
}
