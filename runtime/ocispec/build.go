package ocispec

import (
	"cmp"
	"path"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

// Version is the OCI version of the specs. Nothing newer is used, and older versions of runc
// and crun refuse a newer one.
const Version = "1.0.2"

// Input is what a container's spec is built from: what Plan returns, and what the caller adds to it of
// this machine.
type Input struct {
	Context
	Host
	Container *v1.Container
	// Env is what Environment returned.
	Env []string
	// AppArmorProfile is the name of the container's AppArmor profile, empty for none.
	AppArmorProfile string
	// ProcessLabel is the SELinux label of the process, MountLabel that of its files; empty for none.
	ProcessLabel string
	MountLabel   string

	// Mounts are those of the container's volumes and of its own files such as /etc/hosts.
	Mounts []specs.Mount
	// CgroupsPath is what CgroupsPath returns.
	CgroupsPath string
	// HostDevices are the devices of the host, for privileged containers.
	HostDevices []specs.LinuxDevice
	// Seccomp is the container's seccomp profile if it is in a file (type Localhost), else nil.
	Seccomp *specs.LinuxSeccomp
}

// Plan returns the input of the container's spec as far as it follows from the pod: the environment, and
// the labels and profiles that confine it.
func Plan(c Context, h Host, container *v1.Container) (Input, error) {
	in := Input{Context: c, Host: h, Container: container}
	var err error
	if in.Env, err = Environment(c, container); err != nil {
		return in, err
	}
	in.AppArmorProfile = AppArmorName(c.Pod, container, h.AppArmor)
	if h.SELinux {
		in.ProcessLabel, in.MountLabel = SELinuxLabels(c.Pod, container)
	}
	return in, nil
}

// Build returns the OCI spec of a container as containerd's CRI plugin makes it from what
// the kubelet asks for. The root file system is at "rootfs" in the bundle. No rlimits are
// set: as in Kubernetes, the engine's are inherited.
func Build(in Input) (*specs.Spec, error) {
	if err := supported(in); err != nil {
		return nil, err
	}
	s := SecurityContext(in.Pod, in.Container)
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
		Version: Version,
		Process: process,
		Root:    &specs.Root{Path: "rootfs", Readonly: isTrue(s.ReadOnlyRootFilesystem)},
		Mounts:  mergeMounts(defaults, in.Mounts),
		Linux:   linux(in, &s),
	}, nil
}

// supported refuses what the sandbox does not have.
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
	args, err := command(in.Context, in.Container)
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
	score := max(oomScoreAdj(in.Pod, in.Container, in.Node.MemoryCapacity), in.MinOOMScoreAdj)
	p := &specs.Process{
		Terminal:        in.Container.TTY,
		User:            user,
		Args:            args,
		Env:             slices.Clone(in.Env),
		Cwd:             workingDir(in),
		Capabilities:    caps,
		NoNewPrivileges: noNewPrivileges(s),
		OOMScoreAdj:     &score,
		ApparmorProfile: in.AppArmorProfile,
		SelinuxLabel:    in.ProcessLabel,
	}
	if _, ok := LookupEnv(p.Env)("TERM"); in.Container.TTY && !ok {
		p.Env = append(p.Env, "TERM=xterm")
	}
	return p, nil
}

func workingDir(in Input) string {
	return cmp.Or(in.Container.WorkingDir, in.Image.WorkingDir, "/")
}

// idMappings returns the mappings of a pod with a user namespace.
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

// namespaces returns the pod's namespaces, by path, and the container's own. One without an
// entry is the host's.
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

// maskedPaths hide information that leaks from the host (pkg/securitycontext defaultMaskedPaths).
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
