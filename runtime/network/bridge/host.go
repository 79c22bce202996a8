package bridge

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

// DefaultLink returns the index of the interface that holds the host's default route of the
// lowest metric, 0 when there is none. family is netlink.FAMILY_V4 or FAMILY_V6.
func DefaultLink(family int) (int, error) {
	routes, err := netlink.RouteList(nil, family)
	if err != nil {
		return 0, fmt.Errorf("listing the machine's routes: %w", err)
	}
	index, metric := 0, 0
	for _, r := range routes {
		if isDefault(r) && r.LinkIndex != 0 && (index == 0 || r.Priority < metric) {
			index, metric = r.LinkIndex, r.Priority
		}
	}
	return index, nil
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// routedNetworks returns the networks that the machine has routes to, except default routes.
func routedNetworks() ([]*net.IPNet, error) {
	var nets []*net.IPNet
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("listing the machine's routes: %w", err)
		}
		for _, r := range routes {
			if !isDefault(r) {
				nets = append(nets, r.Dst)
			}
		}
	}
	return nets, nil
}

// hostMTU returns the MTU of the interface with the default route, at most Ethernet's.
func hostMTU() (int, error) {
	const ethernet = 1500
	index, err := DefaultLink(netlink.FAMILY_V4)
	if err != nil || index == 0 {
		return ethernet, err
	}
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0, fmt.Errorf("looking for the interface of the default route: %w", err)
	}
	return min(link.Attrs().MTU, ethernet), nil
}

// Lock is held by whoever changes the host's network. All instances of this program in
// one network namespace share it. The locked file is the namespace itself: nothing is left
// on disk, and the lock ends with the process and with the programs that inherit it.
type Lock struct{ file *os.File }

// maxWait bounds the wait for a lock: a process that holds it longer hangs.
const maxWait = time.Minute

// LockHost waits for the lock, at most maxWait.
func LockHost(ctx context.Context) (Lock, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return Lock{}, fmt.Errorf("opening the host's network namespace: %w", err)
	}
	if err := await(ctx, func() (bool, error) { return flock.Lock(f) }); err != nil {
		holder := flock.HolderOf(f.Name())
		_ = f.Close()
		return Lock{}, fmt.Errorf("locking the host's network, which is held by %s: %w", holder, err)
	}
	return Lock{f}, nil
}

// await tries until it is done, at most maxWait.
func await(ctx context.Context, try func() (done bool, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxWait, fmt.Errorf("another process has held it for %s", maxWait))
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if done, err := try(); err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// Release gives the lock back.
func (l Lock) Release() { _ = l.file.Close() }
