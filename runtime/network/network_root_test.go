package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/network/namespaces"
)

func TestPodsReachEachOther(t *testing.T) {
	eachFirewall(t, func(t *testing.T, m *Manager) {
		a, b := ensure(t, m, newPod("a")), ensure(t, m, newPod("b"))
		serve(t, a, "a")
		serve(t, b, "b")
		wantAnswer(t, b.NetNS, a.IPs[0]+":80", "a")
		wantAnswer(t, a.NetNS, b.IPs[0]+":80", "b")
		wantAnswer(t, "", a.IPs[0]+":80", "a")
		wantAnswer(t, a.NetNS, "127.0.0.1:80", "a")
	})
}

func TestBandwidthLimit(t *testing.T) {
	m := newManager(t)
	sb := ensure(t, m, newPod("a", func(p *v1.Pod) {
		p.Annotations = map[string]string{ingressAnnotation: "8M", egressAnnotation: "4M"}
	}))
	serve(t, sb, "a")
	wantAnswer(t, "", sb.IPs[0]+":80", "a")
	// Ingress is limited on the host's end of the veth pair, egress on an interface of its own.
	links, err := Listed(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	var rates []uint64 // in bytes per second
	for _, l := range links {
		disciplines, err := netlink.QdiscList(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range disciplines {
			if tbf, ok := q.(*netlink.Tbf); ok {
				rates = append(rates, tbf.Rate)
			}
		}
	}
	slices.Sort(rates)
	if diff := cmp.Diff([]uint64{4e6 / 8, 8e6 / 8}, rates); diff != "" {
		t.Error(diff)
	}
}

// ports are those that freePort has returned.
var ports atomic.Int32

// freePort returns a port that is free, like the next one: nothing else uses the machine, and
// its kernel assigns higher ones.
func freePort() int { return int(20000 + ports.Add(2)) }

func TestHostNetwork(t *testing.T) {
	m := newManager(t)
	sb := ensure(t, m, newPod("a", func(p *v1.Pod) { p.Spec.HostNetwork = true }))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Sandbox{IPCNS: m.files.pin("uid-a", namespaces.IPC).Path, Hostname: host, IPs: []string{"192.0.2.99"}, BootID: process.BootID()}
	if diff := cmp.Diff(want, sb); diff != "" {
		t.Error(diff)
	}
	all := ensure(t, m, newPod("b", func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostIPC = true, true }))
	if diff := cmp.Diff(engine.Sandbox{Hostname: host, IPs: []string{"192.0.2.99"}, BootID: process.BootID()}, all); diff != "" {
		t.Error(diff)
	}
	for _, line := range traces(t, m) {
		if strings.HasPrefix(line, "mount: ") && !strings.Contains(line, "/ipc ") || strings.HasPrefix(line, "link: runonce") {
			t.Errorf("a host-network pod made %s", line)
		}
	}
}

func TestNamespacesHoldNameAndParameters(t *testing.T) {
	m := newManager(t)
	sb := ensure(t, m, newPod("a", func(p *v1.Pod) {
		p.Spec.Hostname = "named"
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
			{Name: "net.ipv4.ip_unprivileged_port_start", Value: "7"},
			{Name: "net/ipv4/conf/eth0/forwarding", Value: "1"},
			{Name: "kernel.shm_rmid_forced", Value: "1"},
		}}
	}))
	got := map[string]string{}
	err := namespaces.Inside(pins(sb), func() error {
		for _, f := range []string{
			"net/ipv4/ip_unprivileged_port_start", "net/ipv4/conf/eth0/forwarding", "kernel/shm_rmid_forced", "kernel/hostname",
		} {
			data, err := os.ReadFile("/proc/sys/" + f)
			if err != nil {
				return err
			}
			got[f] = strings.TrimSpace(string(data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"net/ipv4/ip_unprivileged_port_start": "7",
		"net/ipv4/conf/eth0/forwarding":       "1",
		"kernel/shm_rmid_forced":              "1",
		"kernel/hostname":                     "named",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOwnUsers: the namespaces of a pod belong to its user namespace, whose IDs are its own
// until it is removed.
func TestOwnUsers(t *testing.T) {
	m := newManager(t)
	no := false
	mapped := func(p *v1.Pod) {
		p.Spec.HostUsers = &no
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
			{Name: "net.ipv4.ip_unprivileged_port_start", Value: "7"}, {Name: "kernel.shm_rmid_forced", Value: "1"},
		}}
	}
	first, second := ensure(t, m, newPod("a", mapped)), ensure(t, m, newPod("b", mapped))
	if first.FirstID == 0 || first.FirstID%65536 != 0 || first.FirstID == second.FirstID {
		t.Errorf("IDs from %d and %d", first.FirstID, second.FirstID)
	}
	user, err := os.Stat(first.UserNS)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{first.NetNS, first.IPCNS, first.UTSNS} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_USERNS)
		if err != nil {
			t.Fatal(err)
		}
		owner := os.NewFile(uintptr(fd), "owner")
		if info, err := owner.Stat(); err != nil || !os.SameFile(info, user) {
			t.Errorf("%s belongs to another user namespace: %v", path, err)
		}
		if err := errors.Join(f.Close(), owner.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := holding(m).Remove(t.Context(), newPod("a", mapped)); err != nil {
		t.Fatal(err)
	}
	if again := ensure(t, m, newPod("c", mapped)); again.FirstID != first.FirstID {
		t.Errorf("IDs from %d, want those that are free again from %d on", again.FirstID, first.FirstID)
	}
}

func TestEnsureTwiceIsOne(t *testing.T) {
	m := newManager(t)
	pod := newPod("a")
	first, second := ensure(t, m, pod), ensure(t, m, pod)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Error(diff)
	}
	got, err := New(m.o).Get(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("another process sees (-first +other):\n%s", diff)
	}
}

func TestManyPodsAtOnce(t *testing.T) {
	eachFirewall(t, manyPodsAtOnce)
}

func manyPodsAtOnce(t *testing.T, m *Manager) {
	t.Helper()
	const n = 30
	type answer struct {
		sb  engine.Sandbox
		err error
	}
	answers := make(chan answer, n)
	pods := make([]*v1.Pod, 0, n)
	for i := range n {
		pods = append(pods, newPod(fmt.Sprintf("p%d", i), func(p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: int32(42000 + i)}}
		}))
	}
	for _, p := range pods {
		go func() {
			sb, err := holding(m).Ensure(t.Context(), p)
			answers <- answer{sb, err}
		}()
	}
	var ips []string
	for range n {
		a := <-answers
		if a.err != nil {
			t.Error(a.err)
			continue
		}
		ips = append(ips, a.sb.IPs[0])
	}
	slices.Sort(ips)
	if got := len(slices.Compact(ips)); got != n {
		t.Errorf("%d different addresses for %d pods", got, n)
	}
	removed := make(chan error, n)
	for _, p := range pods {
		go func() { removed <- holding(m).Remove(context.Background(), p) }()
	}
	for range n {
		if err := <-removed; err != nil {
			t.Error(err)
		}
	}
}

func TestGetWithoutSandbox(t *testing.T) {
	m := newManager(t)
	if _, err := m.Get(t.Context(), newPod("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
	if err := holding(m).Remove(t.Context(), newPod("a")); err != nil {
		t.Error(err)
	}
}
