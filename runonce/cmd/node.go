package cmd

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/admit/nodeinfo"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/volume"
)

// nodeFlags describe the node and how it admits pods.
func nodeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "capacity", Category: categoryNode, Usage: "`LIST` of resources, such as cpu=4,memory=8Gi", DefaultText: "detected"},
		&cli.StringFlag{Name: "reserve", Category: categoryNode, Usage: "`LIST` of resources reserved for the system"},
		newListFlag(categoryNode, "cdi-spec-dir", "`DIR` of CDI files", "/etc/cdi, /var/run/cdi"),
		&cli.StringFlag{Name: "node", Category: categoryNode, Usage: "`FILE` with a Node object: labels, taints, allocatable"},
		&cli.StringFlag{Name: "node-name", Category: categoryNode, Usage: "`NAME` of the node", DefaultText: "the host name"},
		newListFlag(categoryNode, "node-label", "node label `KEY=VALUE`", ""),
		&cli.StringFlag{Name: "admission-order", Category: categoryNode, Value: "priority", Usage: "`ORDER` of admission: priority or manifest"},
		ociRuntimeFlag(),
		newListFlag(categoryNode, "runtime-handler", "RuntimeClass `HANDLER` as NAME=TYPE[,OPTION=VALUE]", ""),
		newListFlag(categoryNode, "allow-unsafe-sysctls", "allow this unsafe `SYSCTL`, which may end in *", ""),
	}
}

// node returns the node that pods are admitted to: from --node, from the input, or this
// machine.
func (p *program) node(c *cli.Context, set *manifests.Set, devices *runtime.DeviceRegistry) (node *v1.Node, err error) {
	o := admit.NodeOptions{Name: c.String("node-name")}
	if o.Capacity, err = resources(c, "capacity"); err != nil {
		return nil, err
	}
	if o.Reserved, err = resources(c, "reserve"); err != nil {
		return nil, err
	}
	if o.Labels, err = nodeLabels(listOf(c, "node-label")); err != nil {
		return nil, err
	}
	document := set.Node
	if path := c.String("node"); path != "" {
		if document, err = p.readNode(c, path); err != nil {
			return nil, err
		}
	}
	if document != nil {
		node = admit.FromNodeFile(document, o)
	} else if node, err = p.detect(c, devices, admit.DetectOptions{NodeOptions: o}); err != nil {
		return nil, err
	}
	p.warnExhausted(o.Capacity, node)
	return node, nil
}

// warnExhausted warns of resources in --capacity of which nothing is left for pods.
func (p *program) warnExhausted(capacity v1.ResourceList, node *v1.Node) {
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		has, left := capacity[name], node.Status.Allocatable[name]
		if has.Sign() > 0 && left.Sign() <= 0 {
			p.log.Warn(fmt.Sprintf("--capacity %s=%s leaves nothing for pods: like the kubelet, runonce keeps free what --reserve names, huge pages, "+
				"100Mi of memory and 10%% of ephemeral-storage", name, has.String()))
		}
	}
}

// devices reads the CDI specifications. Invalid ones are ignored.
func (p *program) devices(c *cli.Context) *runtime.DeviceRegistry {
	dirs := listOf(c, "cdi-spec-dir")
	if len(dirs) == 0 {
		dirs = runtime.DeviceDirs()
	}
	devices, broken, err := runtime.OpenDevices(dirs)
	for _, err := range append(broken, err) {
		if err != nil {
			p.log.Warn("ignoring devices", "error", err)
		}
	}
	return devices
}

// detect returns this machine as a node.
func (p *program) detect(c *cli.Context, devices *runtime.DeviceRegistry, o admit.DetectOptions) (*v1.Node, error) {
	if o.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, unusable(fmt.Errorf("naming the node: %w", err))
		}
		o.Name = strings.ToLower(name)
	}
	size, err := filesystem(c.String("root"))
	if err != nil {
		return nil, unusable(err)
	}
	o.NodeFS, o.ImageFS = size, size
	o.Devices = map[string]int64{}
	for kind, names := range devices.Kinds() {
		o.Devices[kind] = int64(len(names))
	}
	node, err := admit.Detect(p.io.Machine, o)
	if err != nil {
		return nil, unusable(err)
	}
	return node, nil
}

// filesystem returns the size of the file system that has the directory, which need not exist
// yet.
func filesystem(dir string) (nodeinfo.Filesystem, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nodeinfo.Filesystem{}, fmt.Errorf("getting the size of the filesystem: %w", err)
	}
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			return nodeinfo.Statfs(dir)
		}
		dir = filepath.Dir(dir)
	}
}

// readNode reads a document of kind Node.
func (p *program) readNode(c *cli.Context, path string) (*v1.Node, error) {
	set, err := manifests.ReadPaths(c.Context, []string{path}, manifests.Options{Stdin: p.io.Stdin, Variables: p.variables})
	if err != nil {
		return nil, badInput(err)
	}
	if set.Node == nil {
		return nil, usagef("--node %s: has no document of kind Node", path)
	}
	return set.Node, nil
}

func resources(c *cli.Context, flag string) (v1.ResourceList, error) {
	list, err := admit.ParseResources(c.String(flag))
	if err != nil {
		return nil, usagef("--%s: %w", flag, err)
	}
	return list, nil
}

func nodeLabels(pairs []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, usagef("--node-label %q: must be KEY=VALUE", pair)
		}
		labels[key] = value
	}
	return labels, nil
}

// ociRuntimeFlag names the OCI runtime of pods without a RuntimeClass.
func ociRuntimeFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "oci-runtime", Category: categoryNode, Usage: "OCI `RUNTIME`: runc, crun or a path",
		DefaultText: "runc, else crun",
	}
}

// handlers reads --runtime-handler.
func handlers(c *cli.Context) ([]containerd.Handler, error) {
	all, err := containerd.ParseHandlers(listOf(c, "runtime-handler"))
	if err != nil {
		return nil, usagef("--runtime-handler %w", err)
	}
	named := slices.ContainsFunc(all, func(h containerd.Handler) bool { return h.Name == containerd.DefaultHandler })
	if runtime := c.String("oci-runtime"); runtime != "" && named {
		return nil, usagef("--oci-runtime %s: --runtime-handler %s=... names the default runtime as well", runtime, containerd.DefaultHandler)
	}
	return all, nil
}

// admitOptions reads the flags of admission. On this machine, what it has counts as well.
func (p *program) admitOptions(c *cli.Context, set *manifests.Set, local bool) (admit.Options, error) {
	order := admit.Order(c.String("admission-order"))
	if order != admit.ByPriority && order != admit.ByManifest {
		return admit.Options{}, usagef("--admission-order %q: must be priority or manifest", order)
	}
	o := admit.Options{
		Order: order, AllowUnsafeSysctls: listOf(c, "allow-unsafe-sysctls"),
		Prune: prune(c, set, local), Rerun: c.Bool("rerun"), Claims: claims(set),
	}
	if err := admit.ValidateSysctls(o.AllowUnsafeSysctls); err != nil {
		return o, usagef("--allow-unsafe-sysctls: %w", err)
	}
	runtimes, err := handlers(c)
	if err != nil {
		return o, err
	}
	if local || len(runtimes) > 0 {
		o.RuntimeHandlers = containerd.HandlerNames(runtimes)
	}
	if !local {
		return o, nil
	}
	o.NoNFS = !volume.HasNFS()
	o.AppArmor = runtime.AppArmorEnabled(p.io.Machine)
	return o, nil
}

// listeners returns the sockets that listen on host ports of pods that do not run yet.
func (p *program) listeners(c *cli.Context, pods, running []*v1.Pod) ([]admit.Listener, error) {
	root, err := filepath.Abs(c.String("root"))
	if err != nil {
		return nil, fmt.Errorf("resolving directory %q: %w", c.String("root"), err)
	}
	runs := map[types.UID]bool{}
	for _, pod := range running {
		runs[pod.UID] = !podspec.Ended(pod.Status.Phase)
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return runs[pod.UID] })
	listeners, err := admit.Listeners(p.io.Machine, pods, func(process nodeinfo.Process) types.UID {
		for _, pod := range running {
			if slices.ContainsFunc(process.Cgroups, func(path string) bool { return cgroup.Holds(backend.CgroupParent(root), pod, path) }) {
				return pod.UID
			}
		}
		return ""
	})
	if err != nil {
		return nil, unusable(err)
	}
	return listeners, nil
}

// claims returns what the claims of the input and their volumes ask for.
func claims(set *manifests.Set) map[types.NamespacedName]admit.Claim {
	all := map[types.NamespacedName]admit.Claim{}
	for _, c := range set.Claims() {
		claim := admit.Claim{OnePod: slices.Contains(c.Spec.AccessModes, v1.ReadWriteOncePod)}
		if pv, ok := set.PersistentVolume(c.Spec.VolumeName); ok {
			claim.NFS = pv.Spec.NFS != nil
			if pv.Spec.NodeAffinity != nil {
				claim.Nodes = pv.Spec.NodeAffinity.Required
			}
		}
		all[types.NamespacedName{Namespace: c.Namespace, Name: c.Name}] = claim
	}
	return all
}
