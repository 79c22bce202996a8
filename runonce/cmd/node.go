package cmd

import (
	"context"
	"fmt"
	"maps"
	"os"
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
	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/host"
)

// nodeFlags describe the node and how it admits pods.
type nodeFlags struct {
	runtimeFlags
	capacity, reserve, nodeFile, nodeName, admissionOrder string
	cdiDirs, nodeLabels, unsafeSysctls                    list
	countOthers                                           bool

	nodeOptions admit.NodeOptions // what check has read of them
}

func (f *nodeFlags) flags() []cli.Flag {
	return append(f.runtimeFlags.flags(),
		&cli.StringFlag{Name: "capacity", Destination: &f.capacity, Category: categoryNode, Usage: "`LIST` of resources, such as cpu=4,memory=8Gi", DefaultText: "detected"},
		textFlag(&f.reserve, categoryNode, "`LIST` of resources reserved for the system", "reserve", ""),
		boolFlag(&f.countOthers, categoryNode, "reserve also what containers of other engines and roots have", "count-others"),
		listFlag(&f.cdiDirs, categoryNode, "`DIR` of CDI files", "cdi-spec-dir", "/etc/cdi, /var/run/cdi"),
		textFlag(&f.nodeFile, categoryNode, "`FILE` with a Node object: labels, taints, allocatable", "node", ""),
		&cli.StringFlag{Name: "node-name", Destination: &f.nodeName, Category: categoryNode, Usage: "`NAME` of the node", DefaultText: "the host name"},
		listFlag(&f.nodeLabels, categoryNode, "node label `KEY=VALUE`", "node-label", ""),
		textFlag(&f.admissionOrder, categoryNode, "`ORDER` of admission: priority or manifest", "admission-order", string(admit.ByPriority)),
		listFlag(&f.unsafeSysctls, categoryNode, "allow this unsafe `SYSCTL`, which may end in *", "allow-unsafe-sysctls", ""),
	)
}

// check reads the values.
func (f *nodeFlags) check() (err error) {
	f.nodeOptions.Name = f.nodeName
	if f.nodeOptions.Capacity, err = admit.ParseResources(f.capacity); err != nil {
		return usagef("--capacity: %w", err)
	}
	if f.nodeOptions.Reserved, err = admit.ParseResources(f.reserve); err != nil {
		return usagef("--reserve: %w", err)
	}
	if f.nodeOptions.Labels, err = parseLabels(f.nodeLabels.values); err != nil {
		return err
	}
	if err := checkOneOf("admission-order", admit.Order(f.admissionOrder), admit.ByPriority, admit.ByManifest); err != nil {
		return err
	}
	if err := admit.ValidateSysctls(f.unsafeSysctls.values); err != nil {
		return usagef("--allow-unsafe-sysctls: %w", err)
	}
	return f.runtimeFlags.check()
}

func parseLabels(pairs []string) (map[string]string, error) {
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

// ociRuntimeFlags name the OCI runtime of pods without a RuntimeClass.
type ociRuntimeFlags struct{ ociRuntime string }

func (f *ociRuntimeFlags) flags() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{
		Name: "oci-runtime", Destination: &f.ociRuntime, Category: categoryNode, Usage: "OCI `RUNTIME`: runc, crun or a path",
		DefaultText: "crun if it works",
	}}
}

// runtimeFlags name the OCI runtimes of pods.
type runtimeFlags struct {
	ociRuntimeFlags
	runtimeHandlers list

	handlers []containerd.Handler // which check has read
}

func (f *runtimeFlags) flags() []cli.Flag {
	return append(f.ociRuntimeFlags.flags(),
		listFlag(&f.runtimeHandlers, categoryNode, "RuntimeClass `HANDLER` as NAME=TYPE[,OPTION=VALUE]", "runtime-handler", ""))
}

func (f *runtimeFlags) check() (err error) {
	if f.handlers, err = containerd.ParseHandlers(f.runtimeHandlers.values); err != nil {
		return usagef("--runtime-handler %w", err)
	}
	if f.ociRuntime != "" && slices.ContainsFunc(f.handlers, func(h containerd.Handler) bool { return h.Name == containerd.DefaultHandler }) {
		return usagef("--oci-runtime %s: --runtime-handler %s=... names the default runtime as well", f.ociRuntime, containerd.DefaultHandler)
	}
	return nil
}

// setTo says with what to run containers.
func (f *runtimeFlags) setTo(o *backend.Options) {
	o.RuncPath, o.Handlers, o.StartsNothing = f.ociRuntime, f.handlers, false
}

// node returns the node that pods are admitted to: from --node, from the input, or this
// machine.
func (c *console) node(ctx context.Context, f *podFlags, set *manifests.Set, devices *host.Devices) (node *v1.Node, err error) {
	if f.countOthers {
		if f.nodeOptions.Others, err = c.others(f.root); err != nil {
			return nil, err
		}
	}
	document := set.Node
	if f.nodeFile != "" {
		if document, err = c.readNode(ctx, f); err != nil {
			return nil, err
		}
	}
	if document != nil {
		node = admit.FromNodeFile(document, f.nodeOptions)
	} else if node, err = c.detect(f.nodeOptions, f.root, devices); err != nil {
		return nil, err
	}
	c.warnExhausted(f.nodeOptions.Capacity, node)
	return node, nil
}

// others returns what else than the pods of the root uses this machine.
func (c *console) others(root string) ([]admit.Other, error) {
	parent := backend.CgroupParent(root)
	others, err := admit.Others(c.io.Machine, func(path string) bool { return cgroup.HoldsAll(parent, path) })
	if err != nil {
		return nil, unusable(fmt.Errorf("--count-others: %w", err))
	}
	return others, nil
}

// warnExhausted warns of resources in --capacity of which nothing is left for pods.
func (c *console) warnExhausted(capacity v1.ResourceList, node *v1.Node) {
	for _, name := range slices.Sorted(maps.Keys(capacity)) {
		has, left := capacity[name], node.Status.Allocatable[name]
		if has.Sign() > 0 && left.Sign() <= 0 {
			c.log.Warn(fmt.Sprintf("--capacity %s=%s leaves nothing for pods: like the kubelet, runonce keeps free what --reserve names and --count-others finds, huge pages, "+
				"100Mi of memory and 10%% of ephemeral-storage", name, has.String()))
		}
	}
}

// devices reads the CDI specifications in the directories, or in the usual ones. Invalid ones are ignored.
func (c *console) devices(dirs []string) *host.Devices {
	if len(dirs) == 0 {
		dirs = host.DeviceDirs()
	}
	devices, broken, err := host.OpenDevices(dirs)
	for _, err := range append(broken, err) {
		if err != nil {
			c.log.Warn("could not use a CDI specification; ignoring its devices", "error", err)
		}
	}
	return devices
}

// detect returns this machine as a node.
func (c *console) detect(options admit.NodeOptions, root string, devices *host.Devices) (*v1.Node, error) {
	o := admit.DetectOptions{NodeOptions: options}
	if o.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, unusable(fmt.Errorf("naming the node: %w", err))
		}
		o.Name = strings.ToLower(name)
	}
	size, err := c.filesystem(root)
	if err != nil {
		return nil, unusable(err)
	}
	o.NodeFS, o.ImageFS = size, size
	o.Devices = map[string]int64{}
	for kind, names := range devices.Kinds() {
		o.Devices[kind] = int64(len(names))
	}
	node, err := admit.Detect(c.io.Machine, o)
	if err != nil {
		return nil, unusable(err)
	}
	return node, nil
}

// filesystem returns the size of the file system that has the directory, which need not exist
// yet.
func (c *console) filesystem(dir string) (nodeinfo.Filesystem, error) {
	return c.io.Statfs(backend.Existing(dir))
}

// readNode reads a document of kind Node.
func (c *console) readNode(ctx context.Context, f *podFlags) (*v1.Node, error) {
	set, err := manifests.ReadPaths(ctx, []string{f.nodeFile}, manifests.Options{Stdin: c.io.Stdin, Variables: f.variables})
	if err != nil {
		return nil, badInput(err)
	}
	if set.Node == nil {
		return nil, usagef("--node %s: has no document of kind Node", f.nodeFile)
	}
	return set.Node, nil
}

// admission returns how pods are admitted to a node that is described.
func (f *podFlags) admission(set *manifests.Set) admit.Options {
	o := admit.Options{
		Order: admit.Order(f.admissionOrder), AllowUnsafeSysctls: f.unsafeSysctls.values, Others: f.nodeOptions.Others,
		Claims: claims(set), DependsOn: set.Dependencies(),
	}
	if len(f.handlers) > 0 {
		o.RuntimeHandlers = containerd.HandlerNames(f.handlers)
	}
	return o
}

// listeners returns the sockets that listen on host ports of pods that do not run yet.
func (c *console) listeners(root string, pods, running []*v1.Pod) ([]admit.Listener, error) {
	runs := map[types.UID]bool{}
	for _, pod := range running {
		runs[pod.UID] = !podspec.Ended(pod.Status.Phase)
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return runs[pod.UID] })
	listeners, err := admit.Listeners(c.io.Machine, pods, func(process nodeinfo.Process) types.UID {
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
