package network

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/flock"
)

// defaultLink returns the index of the interface that holds the host's default route of the
// lowest metric, 0 when there is none. family is netlink.FAMILY_V4 or FAMILY_V6.
func defaultLink(family int) (int, error) {
	routes, err := Listed(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
	if err != nil {
		return 0, fmt.Errorf("listing the machine's routes: %w", err)
	}
	index, metric := 0, 0
	for _, r := range routes {
		link := r.LinkIndex
		if len(r.MultiPath) > 0 {
			link = r.MultiPath[0].LinkIndex
		}
		if prefixLength(r) == 0 && link != 0 && (index == 0 || r.Priority < metric) {
			index, metric = link, r.Priority
		}
	}
	return index, nil
}

// prefixLength returns that of the route's destination, 0 for a default route.
func prefixLength(r netlink.Route) int {
	if r.Dst == nil {
		return 0
	}
	ones, _ := r.Dst.Mask.Size()
	return ones
}

// routedNetwork is one that the machine has a route to.
type routedNetwork struct {
	*net.IPNet
	// Connected says that one of the machine's interfaces has an address in it.
	Connected bool
}

// within reports whether all its addresses are in n.
func (r routedNetwork) within(n *net.IPNet) bool {
	own, _ := r.Mask.Size()
	ones, _ := n.Mask.Size()
	return n.Contains(r.IP) && own >= ones
}

// routedNetworks returns the networks that the machine has routes to, except default routes. VPNs
// replace that of IPv4 by routes to its halves, which have a longer prefix.
func routedNetworks() ([]routedNetwork, error) {
	var nets []routedNetwork
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := Listed(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("listing the machine's routes: %w", err)
		}
		for _, r := range routes {
			if prefixLength(r) > 1 {
				nets = append(nets, routedNetwork{r.Dst, r.Protocol == unix.RTPROT_KERNEL})
			}
		}
	}
	return nets, nil
}

// hostMTU returns the lower MTU of the interfaces with the default routes, at most Ethernet's.
func hostMTU() (int, error) {
	mtu := 1500
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		index, err := defaultLink(family)
		if err != nil {
			return 0, err
		}
		if index == 0 {
			continue
		}
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			return 0, fmt.Errorf("looking for the interface of the default route: %w", err)
		}
		mtu = min(mtu, link.Attrs().MTU)
	}
	return mtu, nil
}

// hostLock is held by whoever changes the host's network. All instances of this program in
// one network namespace share it. The locked file is the namespace itself: nothing is left
// on disk, and the lock ends with the process and with the programs that inherit it.
type hostLock struct{ file *os.File }

// maxLockWait bounds the wait for a lock. Nobody holds it for long, but many may wait.
const maxLockWait = 3 * time.Minute

// hostTurn is held by the one of this process that holds the lock, or waits for other processes.
var hostTurn = make(chan struct{}, 1)

// lockHost waits for the lock, which all get in turn, at most maxLockWait.
func lockHost(ctx context.Context) (hostLock, error) { return lockHostWithin(ctx, maxLockWait) }

func lockHostWithin(ctx context.Context, limit time.Duration) (hostLock, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return hostLock{}, fmt.Errorf("opening the host's network namespace: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %s", limit))
	defer cancel()
	select {
	case hostTurn <- struct{}{}:
		if err = flock.Wait(ctx, f); err == nil {
			return hostLock{f}, nil
		}
		<-hostTurn
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	holder := flock.HolderOf(f.Name())
	_ = f.Close()
	return hostLock{}, fmt.Errorf("locking the host's network, which is held by %s: %w", holder, err)
}

// Release gives the lock back.
func (l hostLock) Release() {
	_ = l.file.Close()
	<-hostTurn
}

// HostIPs returns the machine's own addresses as pods on the host network have them: for
// IPv4 and then IPv6, the first global address of the interface that holds the default
// route, or if that has none of any interface that is up, as of the loopback on a machine whose
// addresses are announced by a routing protocol. Without any it returns 127.0.0.1.
func HostIPs() ([]string, error) {
	var ips []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		ip, err := primaryIP(family)
		if err != nil {
			return nil, err
		}
		if ip != "" {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return []string{"127.0.0.1"}, nil
	}
	return ips, nil
}

func primaryIP(family int) (string, error) {
	addrs, err := Listed(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family) })
	if err != nil {
		return "", fmt.Errorf("listing the machine's addresses: %w", err)
	}
	index, err := defaultLink(family)
	if err != nil {
		return "", err
	}
	other := ""
	for _, a := range addrs {
		if !a.IP.IsGlobalUnicast() || a.Scope != int(netlink.SCOPE_UNIVERSE) {
			continue
		}
		if a.LinkIndex == index {
			return a.IP.String(), nil
		}
		if other == "" && isUp(a.LinkIndex) {
			other = a.IP.String()
		}
	}
	return other, nil
}

func isUp(index int) bool {
	link, err := netlink.LinkByIndex(index)
	return err == nil && link.Attrs().Flags&net.FlagUp != 0
}
