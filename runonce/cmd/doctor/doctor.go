// Package doctor turns what was found of a machine into checks: what a run needs, whether the machine has it, and what
// to do if not. It decides, and looks at nothing but the files it is given.
package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit/nodeinfo"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/ocispec"
)

// Status is the result of a check.
type Status string

// The results of checks.
const (
	OK      Status = "OK"
	Warning Status = "Warning" // some pods cannot run, or not as they should
	Failed  Status = "Failed"  // a run could not work
	Skipped Status = "Skipped" // it is not known
)

// Check is one thing that a run needs.
type Check struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Message string `json:"message"`          // what was found
	Advice  string `json:"advice,omitempty"` // what to do about it
}

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Status: OK, Message: fmt.Sprintf(format, args...)}
}

func failed(name, message, advice string) Check { return Check{name, Failed, message, advice} }

func warning(name, message, advice string) Check { return Check{name, Warning, message, advice} }

func skipped(name, why string) Check { return Check{Name: name, Status: Skipped, Message: why} }

// Process checks what this process may do.
func Process(files fs.FS, root bool) Check {
	const name = "privileges"
	if !root {
		return failed(name, "this process is not root", "use sudo")
	}
	missing, err := host.Lacking(files)
	if err != nil {
		return failed(name, err.Error(), "mount /proc")
	}
	if len(missing) > 0 {
		check := warning(name, "root lacks "+strings.Join(missing, ", "), backend.AdvicePrivileged)
		if slices.Contains(missing, host.CapSysAdmin) {
			check.Status = Failed
		}
		return check
	}
	if users, err := fs.ReadFile(files, "proc/self/uid_map"); err == nil && !slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"}) {
		return warning(name, "root only of a user namespace, which may not use devices and some mounts", "run it as root of the machine")
	}
	return ok(name, "root, with all capabilities that containers need")
}

// namespaces are those of a container.
var namespaces = []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"}

// Kernel checks what the kernel was built with.
func Kernel(files fs.FS) Check {
	const name = "kernel"
	var missing []string
	for _, ns := range namespaces {
		if _, err := fs.Stat(files, "proc/self/ns/"+ns); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, ns)
		}
	}
	release, err := fs.ReadFile(files, "proc/sys/kernel/osrelease")
	switch {
	case err != nil:
		return failed(name, fmt.Sprintf("reading the kernel's release: %v", err), "mount /proc")
	case len(missing) > 0:
		return failed(name, fmt.Sprintf("Linux %s has no namespaces of the types %s", strings.TrimSpace(string(release)), strings.Join(missing, ", ")),
			"boot a kernel with CONFIG_NAMESPACES")
	}
	return ok(name, "Linux %s", strings.TrimSpace(string(release)))
}

// tried are the names of the checks of what is tried.
var tried = []string{"cgroups", "containerd", "overlayfs", "OCI runtime", "network"}

// Untried returns the checks of what can be tried only with the privileges that this one, of the process, misses.
func Untried(process Check) []Check {
	why := "needs root"
	if strings.Contains(process.Message, host.CapSysAdmin) {
		why = "needs " + host.CapSysAdmin
	}
	all := make([]Check, 0, len(tried))
	for _, name := range tried {
		all = append(all, skipped(name, why))
	}
	return all
}

// Tried returns the checks of what was tried. Address is the socket of a daemon, and network says that pods need one.
func Tried(x backend.Examination, address string, network bool) []Check {
	return []Check{cgroups(x), containerd(x, address), overlayfs(x, address), ociRuntime(x), connected(x, network)}
}

func cgroups(x backend.Examination) Check {
	const name = "cgroups"
	if x.CgroupsErr == nil {
		return ok(name, "cgroup %s", x.Cgroups)
	}
	advice := "mount /sys/fs/cgroup"
	switch text := x.CgroupsErr.Error(); {
	case strings.Contains(text, "read-only"):
		advice = backend.AdvicePrivileged
	case strings.Contains(text, "controller memory"):
		advice = "boot with cgroup_enable=memory on the kernel's command line"
	}
	return failed(name, x.CgroupsErr.Error(), advice)
}

func containerd(x backend.Examination, address string) Check {
	const name = "containerd"
	switch {
	case x.EngineErr != nil:
		return failed(name, x.EngineErr.Error(), "start containerd, or do without --address and CONTAINERD_ADDRESS")
	case address == "":
		return ok(name, "the embedded one")
	}
	return ok(name, "%s at %s", x.Engine.Daemon, address)
}

func overlayfs(x backend.Examination, address string) Check {
	const name = "overlayfs"
	switch {
	case address != "":
		return skipped(name, "is up to the daemon")
	case x.OverlayErr != nil:
		return warning(name, x.OverlayErr.Error()+": each container gets a copy of its image",
			"load the kernel module overlay, or have --root on ext4 or xfs, in a container on a volume")
	}
	return ok(name, "works in --root")
}

func ociRuntime(x backend.Examination) Check {
	const name = "OCI runtime"
	switch {
	case x.CgroupsErr != nil:
		return skipped(name, "needs cgroups")
	case x.RuntimeErr != nil:
		return failed(name, x.RuntimeErr.Error(), "")
	case x.Engine.RuntimePath == "":
		return skipped(name, x.Engine.RuntimeReason)
	case !x.Seccomp:
		return warning(name, x.Engine.RuntimePath+" was built without seccomp: pods with a profile are rejected", "install another one")
	}
	return ok(name, "%s %s has created a container; it was chosen since %s", x.Engine.RuntimePath, x.Engine.Runtime, x.Engine.RuntimeReason)
}

func connected(x backend.Examination, needed bool) Check {
	const name = "network"
	if x.NetworkErr == nil {
		return ok(name, "pods get %s", x.Network)
	}
	text, advice := x.NetworkErr.Error(), ""
	if strings.Contains(text, "peration not permitted") { // the programs write it in either case
		advice = backend.AdvicePrivileged
	}
	if !needed {
		return warning(name, text, advice)
	}
	return failed(name, text, advice)
}

// Node checks whether the node takes pods.
func Node(n *v1.Node) []Check {
	const name = "node"
	var all []Check
	for _, c := range n.Status.Conditions {
		if c.Status != v1.ConditionTrue || c.Type == v1.NodeReady {
			continue
		}
		check := warning(name, fmt.Sprintf("%s: %s", c.Type, c.Message), "")
		if c.Type == v1.NodeMemoryPressure {
			check.Message, check.Advice = check.Message+": BestEffort pods are rejected", "stop what uses the memory"
		}
		if c.Type == v1.NodeDiskPressure {
			check = failed(name, check.Message+": pods are rejected", `free space in --root; "runonce images prune" removes unused images`)
		}
		all = append(all, check)
	}
	if len(all) > 0 {
		return all
	}
	a := n.Status.Allocatable
	return []Check{ok(name, "pods may have %s of CPU and %s of memory", a.Cpu(), bytes(a.Memory().Value()))}
}

// Directory checks the file system that has the directory of a flag.
func Directory(flag, dir string, size nodeinfo.Filesystem, err error) Check {
	name := "--" + flag
	const least = 100 << 20
	switch {
	case err != nil:
		return failed(name, err.Error(), "")
	case size.ReadOnly:
		return failed(name, fmt.Sprintf("%s is on a read-only file system", dir), "choose another --"+flag)
	case size.Available < least:
		return failed(name, fmt.Sprintf("%s has only %s left", dir, bytes(size.Available)), "free space, or choose another --"+flag)
	case size.Inodes > 0 && size.InodesFree == 0:
		return failed(name, fmt.Sprintf("%s has no inodes left", dir), "remove files, or choose another --"+flag)
	}
	return ok(name, "%s has %s left", dir, bytes(size.Available))
}

func bytes(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// Clock checks the time: certificates of registries are valid only from a date. Built is when this program was.
func Clock(now, built time.Time) Check {
	const name = "time"
	if now.Before(built) {
		return warning(name, fmt.Sprintf("the clock says %s, which is before this program was built: certificates seem to be not valid yet", now.UTC().Format(time.DateTime)),
			"set it, or wait in the boot for time-sync.target")
	}
	return ok(name, "%s UTC", now.UTC().Format(time.DateTime))
}

// Names checks the configuration of the resolver that pods get, which is in the file with this name and text.
func Names(file, text string, err error) Check {
	const name = "names"
	if err != nil {
		return warning(name, fmt.Sprintf("reading the name servers: %v", err), "write them to "+file)
	}
	servers := ocispec.Nameservers(text)
	switch {
	case len(servers) == 0:
		return warning(name, file+" has no name server", "add one; pulls and pods need it")
	case !slices.ContainsFunc(servers, func(s string) bool { return !strings.HasPrefix(s, "127.") && s != "::1" }):
		return warning(name, fmt.Sprintf("the name servers in %s, %s, are this machine only, which pods cannot reach in their own network", file, strings.Join(servers, ", ")),
			"add another one, or set spec.dnsConfig of the pods")
	}
	return ok(name, "%s", strings.Join(servers, ", "))
}

// Image checks whether a registry has an image. Always says that a run asks for it even if it is present.
func Image(ref, digest string, err error, always bool) Check {
	name := "image " + ref
	switch {
	case err == nil:
		return ok(name, "%s", digest)
	case always:
		return failed(name, err.Error(), "")
	}
	return warning(name, err.Error(), "a run works only if the image is present, or in --images-dir")
}
