// Package node reads the flags that describe the node and how it admits pods.
package node

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/admit/host"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/exitcode"
	"github.com/runonce/runonce/runtime/device"
	"github.com/runonce/runonce/runtime/handler"
	"github.com/runonce/runonce/runtime/volume/mount"
)

// Source is what the node is read from, beside the flags.
type Source struct {
	// Machine is the root of the machine's files.
	Machine fs.FS
	Stdin   io.Reader
	// Devices are those of the machine; nil for none.
	Devices *device.Registry
}

const category = "Node"

// Flags describe the node and how it admits pods.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "capacity", Category: category, Usage: "`LIST` of resources instead of the detected ones: cpu=4,memory=8Gi,example.com/gpu=1"},
		&cli.StringFlag{Name: "reserve", Category: category, Usage: "`LIST` of resources kept from pods"},
		&cli.StringSliceFlag{Name: "cdi-spec-dir", Category: category, Usage: "`DIR` of CDI specifications, whose devices pods can ask for; may be repeated (default: /etc/cdi, /var/run/cdi)"},
		&cli.StringFlag{Name: "node", Category: category, Usage: "`FILE` with a document of kind Node: labels, taints, allocatable"},
		&cli.StringFlag{Name: "node-name", Category: category, Usage: "`NAME` of the node (default: the host name)"},
		&cli.StringSliceFlag{Name: "node-label", Category: category, Usage: "`KEY=VALUE` label of the node; may be repeated"},
		&cli.StringFlag{Name: "admission-order", Category: category, Value: "priority", Usage: "priority (highest first) or manifest (the kubelet's way)"},
		&cli.StringSliceFlag{Name: "runtime-handler", Category: category, Usage: "`NAME=TYPE[,OPTION=VALUE]` of a container runtime for RuntimeClasses: a runtime type of containerd's, or an OCI runtime's path; may be repeated (built in: runc)"},
		&cli.StringSliceFlag{Name: "allow-unsafe-sysctls", Category: category, Usage: "`SYSCTL` allowed beside the safe ones; a trailing * stands for any"},
	}
}

// Node returns the node that pods are admitted to: that of --node, that of the input, or
// this machine.
func (s Source) Node(c *cli.Context, set *manifests.Set) (*v1.Node, error) {
	capacity, err := resources(c, "capacity")
	if err != nil {
		return nil, err
	}
	reserved, err := resources(c, "reserve")
	if err != nil {
		return nil, err
	}
	labels, err := nodeLabels(c.StringSlice("node-label"))
	if err != nil {
		return nil, err
	}
	document := set.Node
	if path := c.String("node"); path != "" {
		if document, err = s.nodeDocument(c, path); err != nil {
			return nil, err
		}
	}
	if document != nil {
		return admit.FromNodeFile(document, admit.NodeFileOptions{
			Name: c.String("node-name"), Labels: labels, Capacity: capacity, Reserved: reserved, SupplementalGroupsPolicy: true,
		}), nil
	}
	name := c.String("node-name")
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return nil, exitcode.Unusable(fmt.Errorf("naming the node: %w", err))
		}
		name = strings.ToLower(name)
	}
	return s.detect(c, admit.DetectOptions{Name: name, Labels: labels, Capacity: capacity, Reserved: reserved, SupplementalGroupsPolicy: true})
}

// Devices reads the machine's specifications of devices and returns the faults of those
// that cannot be used.
func Devices(c *cli.Context) (*device.Registry, []error, error) {
	dirs := c.StringSlice("cdi-spec-dir")
	if len(dirs) == 0 {
		dirs = device.Dirs()
	}
	return device.Open(dirs)
}

// detect looks at this machine.
func (s Source) detect(c *cli.Context, o admit.DetectOptions) (*v1.Node, error) {
	room, err := filesystem(c.String("root"))
	if err != nil {
		return nil, exitcode.Unusable(err)
	}
	o.NodeFS, o.ImageFS = room, room
	o.Devices = map[string]int64{}
	for kind, names := range s.Devices.Kinds() {
		o.Devices[kind] = int64(len(names))
	}
	node, err := admit.Detect(s.Machine, o)
	if err != nil {
		return nil, exitcode.Unusable(err)
	}
	return node, nil
}

// filesystem measures the file system that will hold the directory, which need not exist
// yet.
func filesystem(dir string) (host.Filesystem, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return host.Filesystem{}, fmt.Errorf("measuring the filesystem: %w", err)
	}
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" {
			return host.Statfs(dir)
		}
		dir = filepath.Dir(dir)
	}
}

// nodeDocument reads a document of kind Node.
func (s Source) nodeDocument(c *cli.Context, path string) (*v1.Node, error) {
	set, err := manifests.ReadPaths(c.Context, []string{path}, manifests.Options{Stdin: s.Stdin})
	if err != nil {
		return nil, exitcode.BadInput(err)
	}
	if set.Node == nil {
		return nil, exitcode.Usagef("--node %s: no document of kind Node in it", path)
	}
	return set.Node, nil
}

func resources(c *cli.Context, flag string) (v1.ResourceList, error) {
	list, err := admit.ParseResources(c.String(flag))
	if err != nil {
		return nil, exitcode.Usagef("--%s: %w", flag, err)
	}
	return list, nil
}

func nodeLabels(pairs []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, exitcode.Usagef("--node-label %q: must be KEY=VALUE", pair)
		}
		labels[key] = value
	}
	return labels, nil
}

// Handlers reads the container runtimes that the flags name.
func Handlers(c *cli.Context) ([]handler.Handler, error) {
	all, err := handler.ParseAll(c.StringSlice("runtime-handler"))
	if err != nil {
		return nil, exitcode.Usagef("--runtime-handler %w", err)
	}
	return all, nil
}

// AdmitOptions reads the flags of admission; here says that the pods are to run on this
// machine, whose listening sockets then count.
func (s Source) AdmitOptions(c *cli.Context, set *manifests.Set, here bool) (admit.Options, error) {
	order := admit.Order(c.String("admission-order"))
	if order != admit.ByPriority && order != admit.ByManifest {
		return admit.Options{}, exitcode.Usagef("--admission-order %q: must be priority or manifest", order)
	}
	o := admit.Options{
		Order: order, AllowUnsafeSysctls: c.StringSlice("allow-unsafe-sysctls"),
		Prune: c.Bool("prune"), Rerun: c.Bool("rerun"), Claims: claims(set),
	}
	if err := admit.ValidateSysctls(o.AllowUnsafeSysctls); err != nil {
		return o, exitcode.Usagef("--allow-unsafe-sysctls: %w", err)
	}
	handlers, err := Handlers(c)
	if err != nil {
		return o, err
	}
	if here || len(handlers) > 0 {
		o.RuntimeHandlers = handler.Names(handlers)
	}
	if !here {
		return o, nil
	}
	if o.Listening, err = admit.ListeningPorts(s.Machine); err != nil {
		return o, exitcode.Unusable(err)
	}
	o.NoNFS = !mount.HasHelper("nfs")
	enabled, err := fs.ReadFile(s.Machine, "sys/module/apparmor/parameters/enabled")
	o.AppArmor = err == nil && strings.TrimSpace(string(enabled)) == "Y"
	return o, nil
}
