package network

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func TestHostMTU(t *testing.T) {
	t.Parallel()
	mtu, err := hostMTU()
	if err != nil || mtu < 576 || mtu > 1500 {
		t.Errorf("MTU = %d, %v", mtu, err)
	}
}

func TestRoutedNetworks(t *testing.T) {
	t.Parallel()
	nets, err := routedNetworks()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nets {
		if ones, _ := n.Mask.Size(); ones <= 1 {
			t.Errorf("the default route is among %v", nets)
		}
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	first, err := lockHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := lockHost(ctx); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	if _, err := lockHostWithin(t.Context(), time.Millisecond); err == nil || !strings.HasSuffix(err.Error(), ": gave up after 1ms") {
		t.Errorf("without a turn: %v", err)
	}
	first.Release()
	second, err := lockHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
}

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
