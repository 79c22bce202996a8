package testcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/daemon"
)

const (
	// dnsAddress is the address of the name server that the pods ask. Unless services are started, nobody
	// answers there.
	dnsAddress = "192.0.2.53"
	// servicesLock is held by the cluster whose Services work: a machine has one kube-proxy.
	servicesLock = "/run/runonce-testcluster.lock"
	// servicesPatience is how long to wait for the lock.
	servicesPatience = 10 * time.Minute
)

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: %q
clientConnection: {kubeconfig: %q}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
healthzBindAddress: %q
hostnameOverride: %q
metricsBindAddress: %q
mode: nftables
nftables: {masqueradeAll: true}
oomScoreAdj: 0
`

// services are what makes Services work on a node.
type services struct {
	lock  *os.File
	dns   net.PacketConn
	proxy *daemon.Process
}

// StartServices makes Services work on the node, by a kube-proxy and a name server, until stop is called, which must
// be also after an error. It waits as long as another cluster of this machine has them.
func (c *Cluster) StartServices(ctx context.Context) (stop func(context.Context) error, err error) {
	s := &services{}
	for _, step := range []func(context.Context, *services) error{c.lockServices, c.startDNS, c.startProxy} {
		if err := step(ctx, s); err != nil {
			return s.stop, fmt.Errorf("starting the Services of the cluster in %s: %w", c.Dir, err)
		}
	}
	return s.stop, nil
}

func (c *Cluster) lockServices(ctx context.Context, s *services) error {
	lock, err := os.OpenFile(servicesLock, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	for end := time.Now().Add(servicesPatience); ; time.Sleep(100 * time.Millisecond) {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil || time.Now().After(end) {
			return errors.Join(fmt.Errorf("locking %s, which another cluster may hold: %w", servicesLock, err), lock.Close())
		}
	}
	if exec.CommandContext(ctx, "nft", "list", "table", "ip", "kube-proxy").Run() == nil {
		return errors.Join(errors.New(`a kube-proxy works on this machine, or has left its table ("nft delete table ip kube-proxy" removes it)`), lock.Close())
	}
	s.lock = lock
	return nil
}

// startDNS gives the node the address of the name server, which goes with the node, and answers there.
func (c *Cluster) startDNS(ctx context.Context, s *services) error {
	link, err := netlink.LinkByName(c.node.link)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(dnsAddress + "/32")
	if err == nil {
		err = netlink.AddrReplace(link, address)
	}
	if err == nil {
		s.dns, err = (&net.ListenConfig{}).ListenPacket(ctx, "udp", net.JoinHostPort(dnsAddress, "53"))
	}
	if err != nil {
		return err
	}
	go c.serveDNS(context.WithoutCancel(ctx), s.dns)
	return nil
}

func (c *Cluster) startProxy(ctx context.Context, s *services) error {
	config, err := c.Kubeconfig(Admin)
	if err != nil {
		return err
	}
	var addresses [2]string
	for i := range addresses {
		port, err := FreePort()
		if err != nil {
			return err
		}
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	text := fmt.Sprintf(proxyConfig, c.node.address, config, addresses[0], NodeName, addresses[1])
	if err := os.WriteFile(c.file("kube-proxy.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	s.proxy, err = c.start(ctx, "kube-proxy", "--config", c.file("kube-proxy.yaml"))
	if err != nil {
		return err
	}
	return s.proxy.Await(ctx, daemon.Listening("tcp", addresses[0]))
}

// stop ends what was started, and removes the rules of kube-proxy.
func (s *services) stop(ctx context.Context) error {
	var err error
	if s.dns != nil {
		err = s.dns.Close()
	}
	if s.proxy != nil {
		err = errors.Join(err, s.proxy.Stop(syscall.SIGKILL))
		for _, family := range []string{"ip", "ip6"} {
			out, nerr := exec.CommandContext(ctx, "nft", "delete", "table", family, "kube-proxy").CombinedOutput()
			if nerr != nil && !strings.Contains(string(out), "No such file or directory") {
				err = errors.Join(err, fmt.Errorf("removing the table of kube-proxy: %w: %s", nerr, out))
			}
		}
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}
