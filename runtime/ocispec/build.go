package ocispec

import (
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/runonce/runonce/runtime/engine"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/ocispec/expand"
	"github.com/runonce/runonce/runtime/ocispec/resources"
)

// version is the OCI version that specs claim. Nothing newer is used, and older runc and
// crun refuse what they do not know.
const version = "1.0.2"

// Input is all that a container's spec is built from.
type Input struct {
	Context
	Container *v1.Container
	// Env is what Environment returned.
	Env []string
	// Mounts are those of the container's volumes and of its own files such as /etc/hosts.
	Mounts []specs.Mount
	// CgroupsPath is the path of the container's cgroup below the cgroup root.
	CgroupsPath string
	CgroupV2    bool
	// CgroupOptions are those of the host's own cgroup mount that a privileged container's
	// must keep.
	CgroupOptions []string
	// SwapLimit says that the kernel can limit swap, so that a memory limit must forbid it.
	SwapLimit bool
	// HugePages are the page sizes in bytes that the kernel has a hugetlb controller for.
	HugePages []int64
	// MinOOMScoreAdj is the lowest oom_score_adj that this process may give; 0 leaves the
	// value as it is only where it is not negative.
	MinOOMScoreAdj int
	// Capabilities are those that this process may give, nil for all.
	Capabilities []string
	// HostDevices are the devices of the host, for privileged containers.
	HostDevices []specs.LinuxDevice
	// Seccomp is the profile that the container's seccompProfile stands for, nil for none.
	Seccomp *specs.LinuxSeccomp
	// AppArmor is the name of the profile that the container is confined by, if any.
	AppArmor string
	// SELinux is the label of the process, MountLabel that of its files; empty for none.
	SELinux    string
	MountLabel string
	// CPUs is the number of CPUs whose thermal throttling is hidden from the container.
	CPUs int
	// Annotations of the spec, for the shim and the runtime.
	Annotations map[string]string
}

// Build returns the OCI spec of a container: what the kubelet asks of a CRI runtime, and
// what containerd's CRI plugin makes of it. The root file system is at "rootfs" in the
// bundle. No rlimits are set: as in Kubernetes, they are inherited.
func Build(in Input) (*specs.Spec, error) {
	if err := supported(in); err != nil {
		return nil, err
	}
	s := security(in.Pod, in.Container)
	process, err := process(in, &s)
	if err != nil {
		return nil, err
	}
	privileged := isTrue(s.Privileged)
	defaults := defaultMounts(privileged)
	if privileged {
		// Without a cgroup namespace this mount is the host's, and would change its options.
		last := &defaults[len(defaults)-1]
		last.Options = append(last.Options, in.CgroupOptions...)
	}
	return &specs.Spec{
		Version:     version,
		Process:     process,
		Root:        &specs.Root{Path: "rootfs", Readonly: isTrue(s.ReadOnlyRootFilesystem)},
		Mounts:      mergeMounts(defaults, in.Mounts),
		Annotations: maps.Clone(in.Annotations),
		Linux:       linux(in, &s),
	}, nil
}

// supported refuses what the sandbox cannot give.
func supported(in Input) error {
	if isTrue(in.Pod.Spec.ShareProcessNamespace) && in.Sandbox.PIDNS == "" {
		return failure.CreateErrorf("shareProcessNamespace: the pod has no shared process namespace")
	}
	if users := in.Pod.Spec.HostUsers; users != nil && !*users && in.Sandbox.UserNS == "" {
		return failure.CreateErrorf("hostUsers: false: the pod has no user namespace")
	}
	if dir := workingDir(in); !path.IsAbs(dir) {
		return failure.CreateErrorf("workingDir %q of container %q is not an absolute path", dir, in.Container.Name)
	}
	return nil
}

func process(in Input, s *v1.SecurityContext) (*specs.Process, error) {
	args, err := Command(in.Context, in.Container, in.Env)
	if err != nil {
		return nil, err
	}
	user, err := processUser(in.Context, in.Container, s)
	if err != nil {
		return nil, err
	}
	caps, err := capabilities(s, in.Capabilities)
	if err != nil {
		return nil, err
	}
	score := max(resources.OOMScoreAdj(in.Pod, in.Container, in.Node.MemoryCapacity), in.MinOOMScoreAdj)
	p := &specs.Process{
		Terminal:        in.Container.TTY,
		User:            user,
		Args:            args,
		Env:             slices.Clone(in.Env),
		Cwd:             workingDir(in),
		Capabilities:    caps,
		NoNewPrivileges: noNewPrivileges(s),
		OOMScoreAdj:     &score,
		ApparmorProfile: in.AppArmor,
		SelinuxLabel:    in.SELinux,
	}
	if _, ok := expand.Env(p.Env)("TERM"); in.Container.TTY && !ok {
		p.Env = append(p.Env, "TERM=xterm")
	}
	return p, nil
}

func workingDir(in Input) string {
	switch {
	case in.Container.WorkingDir != "":
		return in.Container.WorkingDir
	case in.Image.WorkingDir != "":
		return in.Image.WorkingDir
	}
	return "/"
}

// idMappings are those of a pod with a user namespace of its own.
func idMappings(sb engine.Sandbox) []specs.LinuxIDMapping {
	if sb.UserNS == "" {
		return nil
	}
	return []specs.LinuxIDMapping{{HostID: sb.FirstID, Size: engine.UserIDs}}
}

func linux(in Input, s *v1.SecurityContext) *specs.Linux {
	l := &specs.Linux{
		CgroupsPath:       in.CgroupsPath,
		Resources:         linuxResources(in),
		Namespaces:        namespaces(in, isTrue(s.Privileged)),
		RootfsPropagation: rootPropagation(in.Mounts),
		MountLabel:        in.MountLabel,
		UIDMappings:       idMappings(in.Sandbox),
		GIDMappings:       idMappings(in.Sandbox),
	}
	if isTrue(s.Privileged) {
		l.Devices = slices.Clone(in.HostDevices)
		l.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		return l
	}
	l.Seccomp = in.Seccomp
	if s.ProcMount == nil || *s.ProcMount != v1.UnmaskedProcMount {
		l.MaskedPaths = maskedPaths(in.CPUs)
		l.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	return l
}

// namespaces returns those of the pod by their paths and the container's own. A host
// namespace is one without an entry.
func namespaces(in Input, privileged bool) []specs.LinuxNamespace {
	pod, box := &in.Pod.Spec, in.Sandbox
	list := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	if box.UserNS != "" {
		list = append(list, specs.LinuxNamespace{Type: specs.UserNamespace, Path: box.UserNS})
	}
	if !pod.HostPID {
		list = append(list, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: box.PIDNS})
	}
	if !pod.HostIPC {
		list = append(list, specs.LinuxNamespace{Type: specs.IPCNamespace, Path: box.IPCNS})
	}
	if !pod.HostNetwork {
		list = append(list,
			specs.LinuxNamespace{Type: specs.UTSNamespace, Path: box.UTSNS},
			specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: box.NetNS})
	}
	// A cgroup namespace hides the host's tree; not on v1 and not from privileged
	// containers, for compatibility (containerd's buildLinuxSpec).
	if in.CgroupV2 && !privileged {
		list = append(list, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return list
}

// maskedPaths hide what leaks from the host (pkg/securitycontext defaultMaskedPaths).
func maskedPaths(cpus int) []string {
	paths := append(make([]string, 0, 12+cpus),
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap")
	for i := range cpus {
		paths = append(paths, "/sys/devices/system/cpu/cpu"+strconv.Itoa(i)+"/thermal_throttle")
	}
	return paths
}
