package containerd

import (
	"os"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// systemd's default limits of open files, which the containers of a kubelet have, too:
// containerd's service changes nothing about them.
const (
	softFileLimit = 1024
	hardFileLimit = 524288
)

// limitFiles sets the limit of open files of a process in a container of the embedded containerd,
// unless it has one. Otherwise it would have that of whoever ran this program first: the shim is
// started by it, and the pod's containers by the shim.
func limitFiles(p *specs.Process) {
	const name = "RLIMIT_NOFILE"
	if !slices.ContainsFunc(p.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == name }) {
		hard := highestFileLimit()
		p.Rlimits = append(slices.Clone(p.Rlimits), specs.POSIXRlimit{Type: name, Soft: min(softFileLimit, hard), Hard: hard})
	}
}

// highestFileLimit returns the hard limit, lower where this process may not raise its own.
func highestFileLimit() uint64 {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil || own.Max >= hardFileLimit || mayRaiseLimits() {
		return hardFileLimit
	}
	return own.Max
}

// mayRaiseLimits reports whether this process has CAP_SYS_RESOURCE in the first user namespace.
func mayRaiseLimits() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || !slices.Equal(strings.Fields(string(ids)), []string{"0", "0", "4294967295"}) {
		return false
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
