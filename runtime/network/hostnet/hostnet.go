// Package hostnet tells of the machine's own interfaces, addresses and routes.
package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IPs returns the machine's own addresses as pods on the host network have them: for
// IPv4 and then IPv6, the first global address of the interface that holds the default
// route, else of any interface that is up, else of none. Without any it returns
// 127.0.0.1.
func IPs() ([]string, error) {
	var ips []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		ip, err := hostIP(family)
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

func hostIP(family int) (string, error) {
	addrs, err := netlink.AddrList(nil, family)
	if err != nil {
		return "", fmt.Errorf("listing the machine's addresses: %w", err)
	}
	index, err := defaultLink(family)
	if err != nil {
		return "", err
	}
	otherwise := ""
	for _, a := range addrs {
		if !a.IP.IsGlobalUnicast() || a.Scope != int(netlink.SCOPE_UNIVERSE) {
			continue
		}
		if a.LinkIndex == index {
			return a.IP.String(), nil
		}
		if otherwise == "" && index == 0 && isUp(a.LinkIndex) {
			otherwise = a.IP.String()
		}
	}
	return otherwise, nil
}

func isUp(index int) bool {
	link, err := netlink.LinkByIndex(index)
	return err == nil && link.Attrs().Flags&net.FlagUp != 0
}

// defaultLink returns the index of the interface that holds the default route of the
// lowest metric, 0 when there is none.
func defaultLink(family int) (int, error) {
	routes, err := netlink.RouteList(nil, family)
	if err != nil {
		return 0, fmt.Errorf("listing the machine's routes: %w", err)
	}
	index, metric := 0, 0
	for _, r := range routes {
		if !isDefault(r) || r.LinkIndex == 0 {
			continue
		}
		if index == 0 || r.Priority < metric {
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

// Networks returns the networks that the machine routes to, its default routes apart.
func Networks() ([]*net.IPNet, error) {
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

// MTU returns the MTU of the interface with the default route, else Ethernet's.
func MTU() (int, error) {
	const ethernet = 1500
	index, err := defaultLink(netlink.FAMILY_V4)
	if err != nil || index == 0 {
		return ethernet, err
	}
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0, fmt.Errorf("looking for the interface of the default route: %w", err)
	}
	return min(link.Attrs().MTU, ethernet), nil
}

// Lock is held by whoever changes the machine's network. All instances of this program in
// one network namespace share it. It lies on the namespace itself: it leaves no file, and
// ends with the process and with the programs that inherit it.
type Lock struct{ file *os.File }

// MaxWait bounds the waiting for a lock: who holds it so long hangs.
const MaxWait = 2 * time.Minute

// TakeLock waits for the lock, at most MaxWait.
func TakeLock(ctx context.Context) (Lock, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return Lock{}, fmt.Errorf("opening the host's network namespace: %w", err)
	}
	err = Await(ctx, func() (bool, error) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		_ = f.Close()
		return Lock{}, fmt.Errorf("locking the host's network: %w", err)
	}
	return Lock{f}, nil
}

// Await tries until it is done, at most MaxWait.
func Await(ctx context.Context, try func() (done bool, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, MaxWait, fmt.Errorf("another process has held it for %s", MaxWait))
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

// Files is what a program has to inherit that changes the network for the lock's holder:
// should the holder be killed, the next one waits for the program. No lock has none.
func (l Lock) Files() []*os.File {
	if l.file == nil {
		return nil
	}
	return []*os.File{l.file}
}
