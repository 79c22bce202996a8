package doctor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit/nodeinfo"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/doctor"
	"github.com/runonce/runonce/runtime/containerd"
)

// files returns a root file system with these files.
func files(pairs ...string) fs.FS {
	all := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return all
}

const (
	allHeld  = "Name:\trunonce\nCapEff:\t000001ffffffffff\n"
	inDocker = "Name:\trunonce\nCapEff:\t00000000a80425fb\n"
	allUsers = "         0          0 4294967295\n"
)

func namespaces(without string) fs.FS {
	pairs := []string{"proc/sys/kernel/osrelease", "6.1.0\n"}
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		if ns != without {
			pairs = append(pairs, "proc/self/ns/"+ns, "")
		}
	}
	return files(pairs...)
}

func node(conditions ...v1.NodeConditionType) *v1.Node {
	n := &v1.Node{}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}, {Type: v1.NodePIDPressure, Status: v1.ConditionFalse}}
	for _, c := range conditions {
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: c, Status: v1.ConditionTrue, Message: "too little"})
	}
	return n
}

// good is a machine where everything works.
func good() backend.Examination {
	return backend.Examination{
		Cgroups: "v2", Seccomp: true, Network: "a bridge, with nft",
		Engine: containerd.Versions{Daemon: "2.4.0", RuntimePath: "/usr/bin/crun", Runtime: "1.30"},
	}
}

// tried returns the check with that name of a machine where something is different.
func tried(name, address string, network bool, change func(x *backend.Examination)) doctor.Check {
	x := good()
	change(&x)
	for _, c := range doctor.Tried(x, address, network) {
		if c.Name == name {
			return c
		}
	}
	return doctor.Check{}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	asIs := func(*backend.Examination) {}
	broken := errors.New("it is broken")
	gib := int64(1 << 30)
	newYear := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		check doctor.Check
		want  string // status, and what the line has
		has   string
	}{
		{"root", doctor.Process(files("proc/self/status", allHeld, "proc/self/uid_map", allUsers), true), "OK", "root, with all"},
		{"not root", doctor.Process(files(), false), "Failed", "not root: use sudo"},
		{"root of a container", doctor.Process(files("proc/self/status", inDocker), true), "Failed", "root lacks CAP_SYS_ADMIN, CAP_NET_ADMIN: in a container"},
		{"root without devices", doctor.Process(files("proc/self/status", "CapEff:\t000001fff7ffffff\n"), true), "Warning", "root lacks CAP_MKNOD: "},
		{"root of some users", doctor.Process(files("proc/self/status", allHeld, "proc/self/uid_map", "0 100000 65536\n"), true), "Warning", "user namespace"},
		{"no /proc", doctor.Process(files(), true), "Failed", "mount /proc"},
		{"another /proc", doctor.Process(files("proc/self/status", "x"), true), "Failed", "CapEff"},
		{"kernel", doctor.Kernel(namespaces("")), "OK", "Linux 6.1.0"},
		{"kernel without a namespace", doctor.Kernel(namespaces("net")), "Failed", "Linux 6.1.0 has no namespaces of the types net: "},
		{"no kernel", doctor.Kernel(files()), "Failed", "kernel's release"},
		{"cgroups", tried("cgroups", "", true, asIs), "OK", "cgroup v2"},
		{"no memory controller", tried("cgroups", "", true, func(x *backend.Examination) { x.CgroupsErr = errors.New("controller memory is not mounted") }), "Failed", "cgroup_enable=memory"},
		{"read-only cgroups", tried("cgroups", "", true, func(x *backend.Examination) { x.CgroupsErr = errors.New("/sys/fs/cgroup is mounted read-only") }), "Failed", "privileged"},
		{"no cgroups", tried("cgroups", "", true, func(x *backend.Examination) { x.CgroupsErr = broken }), "Failed", "it is broken: mount /sys/fs/cgroup"},
		{"embedded", tried("containerd", "", true, asIs), "OK", "embedded"},
		{"daemon", tried("containerd", "/c.sock", true, asIs), "OK", "2.4.0 at /c.sock"},
		{"no daemon", tried("containerd", "/c.sock", true, func(x *backend.Examination) { x.EngineErr = broken }), "Failed", "it is broken: start containerd"},
		{"overlays", tried("overlayfs", "", true, asIs), "OK", "works"},
		{"no overlays", tried("overlayfs", "", true, func(x *backend.Examination) { x.OverlayErr = broken }), "Warning", "gets a copy of its image: load"},
		{"overlays of a daemon", tried("overlayfs", "/c.sock", true, asIs), "Skipped", "daemon"},
		{"runtime", tried("OCI runtime", "", true, asIs), "OK", "/usr/bin/crun 1.30"},
		{"no runtime", tried("OCI runtime", "", true, func(x *backend.Examination) { x.RuntimeErr = broken }), "Failed", "it is broken"},
		{"runtime without seccomp", tried("OCI runtime", "", true, func(x *backend.Examination) { x.Seccomp = false }), "Warning", "/usr/bin/crun was built without seccomp"},
		{"runtime without cgroups", tried("OCI runtime", "", true, func(x *backend.Examination) { x.CgroupsErr = broken }), "Skipped", "needs cgroups"},
		{"network", tried("network", "", true, asIs), "OK", "pods get a bridge, with nft"},
		{"no network", tried("network", "", true, func(x *backend.Examination) { x.NetworkErr = broken }), "Failed", "it is broken"},
		{"network that must not be changed", tried("network", "", true, func(x *backend.Examination) { x.NetworkErr = errors.New("nft: Operation not permitted") }), "Failed", "privileged"},
		{"no network, and none needed", tried("network", "", false, func(x *backend.Examination) { x.NetworkErr = broken }), "Warning", "it is broken"},
		{"node", doctor.Node(node())[0], "OK", "pods may have"},
		{"full node", doctor.Node(node(v1.NodeDiskPressure))[0], "Failed", "DiskPressure: too little: pods are rejected: free space"},
		{"node without memory", doctor.Node(node(v1.NodeMemoryPressure))[0], "Warning", "BestEffort"},
		{"another pressure", doctor.Node(node(v1.NodePIDPressure))[0], "Warning", "PIDPressure"},
		{"disk", doctor.Directory("root", "/r", nodeinfo.Filesystem{Available: 3 * gib}, nil), "OK", "/r has 3.0 GiB left"},
		{"full disk", doctor.Directory("root", "/r", nodeinfo.Filesystem{Available: 1}, nil), "Failed", "/r has only 0.0 GiB left: free space, or choose another --root"},
		{"no inodes", doctor.Directory("root", "/r", nodeinfo.Filesystem{Available: gib, Inodes: 9}, nil), "Failed", "no inodes"},
		{"read-only disk", doctor.Directory("state", "/s", nodeinfo.Filesystem{Available: gib, ReadOnly: true}, nil), "Failed", "read-only file system: choose another --state"},
		{"no disk", doctor.Directory("root", "/r", nodeinfo.Filesystem{}, broken), "Failed", "it is broken"},
		{"clock", doctor.Clock(newYear.Add(time.Hour), newYear), "OK", "2026-01-01 01:00:00 UTC"},
		{"no clock", doctor.Clock(time.Unix(0, 0), newYear), "Warning", "1970-01-01 00:00:00, which is before"},
		{"name servers", doctor.Names("/f", "search x\nnameserver 192.0.2.1\nnameserver ::1\n", nil), "OK", "192.0.2.1, ::1"},
		{"no name server", doctor.Names("/f", "search x\n", nil), "Warning", "/f has no name server: add one"},
		{"name servers of this machine", doctor.Names("/f", "nameserver 127.0.0.1\n", nil), "Warning", "127.0.0.1, are this machine only"},
		{"no file of name servers", doctor.Names("/f", "", fs.ErrNotExist), "Warning", "write them to /f"},
		{"image", doctor.Image("a:1", "sha256:1", nil, true), "OK", "sha256:1"},
		{"no image", doctor.Image("a:1", "", broken, true), "Failed", "it is broken"},
		{"no image, but perhaps present", doctor.Image("a:1", "", broken, false), "Warning", "it is broken: a run works only if"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			line := fmt.Sprintf("%s: %s: %s", tc.check.Status, tc.check.Message, tc.check.Advice)
			if tc.check.Name == "" || !strings.HasPrefix(line, tc.want+": ") || !strings.Contains(line, tc.has) {
				t.Errorf("%q has %q, want %s and %q", tc.check.Name, line, tc.want, tc.has)
			}
		})
	}
}

// TestUntried: what could not be tried is named in the same words.
func TestUntried(t *testing.T) {
	t.Parallel()
	for why, process := range map[string]doctor.Check{
		"needs root":          doctor.Process(files(), false),
		"needs CAP_SYS_ADMIN": doctor.Process(files("proc/self/status", inDocker), true),
	} {
		for i, c := range doctor.Tried(good(), "", true) {
			if other := doctor.Untried(process)[i]; other.Name != c.Name || other.Status != doctor.Skipped || other.Message != why {
				t.Errorf("%+v in place of %s", other, c.Name)
			}
		}
	}
}
