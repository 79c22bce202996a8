package testcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/testimages"
)

const (
	// NodeName is the name of the node.
	NodeName = "node1"
	// criNamespace is containerd's namespace for a kubelet.
	criNamespace = "k8s.io"
	cgroups      = "/sys/fs/cgroup"
)

// node is the node of a cluster.
type node struct {
	containerd *daemon.Process
	kubelet    *daemon.Process
	socket     string
	cgroup     string // below the root of each hierarchy
	bridge     string
	link       string // which has the address
	address    string // a kubelet wants one that is not of loopback
}

const containerdConfig = `version = 3
root = "{{.Dir}}/containerd"
state = "{{.Dir}}/state"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{{.Socket}}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/opt/cni/bin", "/usr/lib/cni"]
  conf_dir = "{{.Dir}}/cni"
[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
`

const cniConfig = `{"cniVersion": "1.0.0", "name": "test", "plugins": [{
  "type": "bridge", "bridge": "{{.Bridge}}", "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": "{{.Dir}}/addresses", "ranges": [[{"subnet": "{{.Subnet}}"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
address: {{.Address}}
port: {{.Port}}
healthzPort: 0
readOnlyPort: 0
containerRuntimeEndpoint: unix://{{.Socket}}
cgroupDriver: cgroupfs
cgroupRoot: /{{.Cgroup}}
enforceNodeAllocatable: []
evictionHard: {memory.available: 1Mi, nodefs.available: "0%", imagefs.available: "0%"}
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
clusterDNS: [{{.DNS}}]
clusterDomain: cluster.local
makeIPTablesUtilChains: false
podLogsDir: {{.Dir}}/pods
maxPods: 400
registerNode: true
resolvConf: {{.Dir}}/resolv.conf
volumePluginDir: {{.Dir}}/plugins
`

// StartNode starts the node with the images of the tests, and returns once it is ready.
func (c *Cluster) StartNode(ctx context.Context) error {
	c.node = &node{socket: c.file("containerd.sock")}
	n := c.node
	n.cgroup = "runonce-" + filepath.Base(c.Dir)
	n.bridge, n.link = "rt"+strconv.Itoa(c.ports.kubelet), "rn"+strconv.Itoa(c.ports.kubelet)
	n.address = fmt.Sprintf("10.233.%d.1", c.ports.kubelet%256) // which others hardly use; two clusters differ
	for _, step := range []func(context.Context) error{
		c.writeNode,
		c.startContainerd,
		func(ctx context.Context) error { return c.LoadImages(ctx) },
		c.startKubelet,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("starting a node in %s: %w", c.Dir, err)
		}
	}
	return nil
}

// writeNode writes the configuration of the node and makes its cgroup.
func (c *Cluster) writeNode(context.Context) error {
	for _, dir := range []string{"cni", "plugins", "pods"} {
		if err := os.MkdirAll(c.file(dir), 0o755); err != nil {
			return err
		}
	}
	values := map[string]any{
		"Dir": c.Dir, "Socket": c.node.socket, "Bridge": c.node.bridge, "Port": c.ports.kubelet, "Cgroup": c.node.cgroup,
		"Address": c.node.address, "DNS": dnsAddress,
		// Short addresses leave room for a table of 80 columns.
		"Subnet": fmt.Sprintf("10.9.%d.0/24", c.ports.kubelet%100),
	}
	for name, text := range map[string]string{
		"containerd.toml": containerdConfig, "cni/10-test.conflist": cniConfig, "kubelet.yaml": kubeletConfig, "resolv.conf": "nameserver " + dnsAddress + "\n",
	} {
		var b strings.Builder
		if err := template.Must(template.New(name).Parse(text)).Execute(&b, values); err != nil {
			return err
		}
		if err := os.WriteFile(c.file(name), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(c.node.makeCgroup(), c.node.makeLink())
}

// makeLink makes the link with the address of the node.
func (n *node) makeLink() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = n.link
	link := &netlink.Bridge{LinkAttrs: attributes}
	address, err := netlink.ParseAddr(n.address + "/32")
	if err == nil {
		err = netlink.LinkAdd(link)
	}
	if err == nil {
		err = errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(link))
	}
	return err
}

// makeCgroup makes the cgroup of the node in each hierarchy. That of cpusets has no processors at
// first.
func (n *node) makeCgroup() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.MkdirAll(filepath.Join(root, n.cgroup), 0o755); err != nil {
			return err
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, err := os.ReadFile(filepath.Join(root, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(root, n.cgroup, name), text, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// hierarchies returns where cgroup hierarchies are mounted.
func hierarchies() ([]string, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup" && m.FSType != "cgroup2" || !strings.HasPrefix(m.Mountpoint, cgroups), false
	})
	all := make([]string, 0, len(mounts))
	for _, m := range mounts {
		all = append(all, m.Mountpoint)
	}
	return all, err
}

func (c *Cluster) startContainerd(ctx context.Context) (err error) {
	c.node.containerd, err = c.start(ctx, "containerd", "--config", c.file("containerd.toml"), "--log-level", "warn")
	if err != nil {
		return err
	}
	return c.node.containerd.Await(ctx, func(context.Context) error {
		cl, err := client.New(c.node.socket, client.WithTimeout(10*time.Second))
		if err != nil {
			return err
		}
		return cl.Close()
	})
}

// Socket returns the address of the node's containerd, which serves CRI.
func (c *Cluster) Socket() string { return c.node.socket }

// LoadImages imports the named images of the tests (default as testimages.Write) into the node.
func (c *Cluster) LoadImages(ctx context.Context, names ...string) error {
	written, err := testimages.Write(ctx, c.file("images"), names...)
	if err != nil {
		return err
	}
	cl, err := client.New(c.node.socket, client.WithDefaultNamespace(criNamespace))
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }()
	for _, image := range written {
		path := filepath.Join(c.file("images"), image.Name+".tar")
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		images, err := cl.Import(ctx, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("importing %s: %w", path, err)
		}
		for _, i := range images {
			if err := client.NewImage(cl, i).Unpack(ctx, "overlayfs"); err != nil {
				return fmt.Errorf("unpacking %s: %w", i.Name, err)
			}
		}
	}
	return nil
}

func (c *Cluster) startKubelet(ctx context.Context) error {
	config, err := c.Kubeconfig("system:node:" + NodeName)
	if err != nil {
		return err
	}
	c.node.kubelet, err = c.start(ctx, "kubelet", "--config", c.file("kubelet.yaml"), "--kubeconfig", config, "--hostname-override", NodeName,
		"--root-dir", c.file("kubelet"), "--cert-dir", c.file("kubelet-certs"), "--node-ip", c.node.address)
	if err != nil {
		return err
	}
	return c.node.kubelet.Await(ctx, c.nodeReady)
}

// nodeReady returns an error as long as the node is not ready, or has a taint because it was not.
func (c *Cluster) nodeReady(ctx context.Context) error {
	text, err := c.Get(ctx, "/api/v1/nodes/"+NodeName)
	if err == nil && (!strings.Contains(text, `"KubeletReady"`) || strings.Contains(text, "node.kubernetes.io/not-ready")) {
		err = errors.New("the node is not ready")
	}
	return err
}

// stop ends the node and removes what its pods have left on this machine.
func (n *node) stop(ctx context.Context, c *Cluster) error {
	if n == nil {
		return nil
	}
	err := n.kubelet.Stop(syscall.SIGKILL)
	if n.containerd != nil {
		err = errors.Join(err, n.removeContainers(ctx), n.containerd.Stop(syscall.SIGTERM))
	}
	return errors.Join(err, n.removeSandboxes(), mount.UnmountRecursive(c.Dir, unix.MNT_DETACH), removeLink(n.bridge), removeLink(n.link), n.removeCgroup())
}

// removeContainers kills and removes all containers.
func (n *node) removeContainers(ctx context.Context) error {
	cl, err := client.New(n.socket, client.WithDefaultNamespace(criNamespace))
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }()
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	containers, err := cl.Containers(ctx)
	// Sandboxes last: others use their namespaces.
	for _, container := range slices.Backward(containers) {
		if task, terr := container.Task(ctx, nil); terr == nil {
			if _, terr = task.Delete(ctx, client.WithProcessKill); !errdefs.IsNotFound(terr) { // containerd's CRI was faster
				err = errors.Join(err, terr)
			}
		}
		if derr := container.Delete(ctx, client.WithSnapshotCleanup); !errdefs.IsNotFound(derr) {
			err = errors.Join(err, derr)
		}
	}
	return err
}

// removeSandboxes removes the network namespaces of the addresses that were given out.
func (n *node) removeSandboxes() error {
	cached, err := filepath.Glob("/var/lib/cni/results/test-*")
	if err != nil {
		return err
	}
	for _, file := range cached {
		text, rerr := os.ReadFile(file)
		if rerr != nil || !strings.Contains(string(text), n.bridge) {
			continue
		}
		for _, path := range netnsPath.FindAllString(string(text), -1) {
			if uerr := unix.Unmount(path, unix.MNT_DETACH); uerr == nil || errors.Is(uerr, unix.EINVAL) {
				err = errors.Join(err, os.RemoveAll(path))
			}
		}
		err = errors.Join(err, os.Remove(file))
	}
	return err
}
