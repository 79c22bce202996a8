// Package ocispec turns a pod's container, its image and its sandbox into an OCI runtime
// spec and an environment, and makes the files in /etc that the containers of a pod share.
// It is pure: it has no clock, no file system and no engine.
package ocispec

import (
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// Context is what the environment and the spec of a container depend on besides the
// container itself.
type Context struct {
	Pod     *v1.Pod
	Image   engine.Image
	Sandbox engine.Sandbox
	Objects podspec.Objects
	Node    Node
	// File reads a file of one of the pod's volumes, for variables with a fileKeyRef; nil
	// refuses them.
	File func(volume, path string) ([]byte, error)
	// Services are the variables about Services.
	Services []v1.EnvVar
}

// Node is what containers can learn about the node.
type Node struct {
	Name string
	IPs  []string // the primary one first
	// MemoryCapacity is the node's memory in bytes.
	MemoryCapacity int64
	// Allocatable is the default of limits that a container does not set.
	Allocatable v1.ResourceList
}

// Host is what the machine and this process can give to containers.
type Host struct {
	CgroupV2 bool
	// CgroupOptions are the options of the host's cgroup mount that the one of a privileged
	// container must keep.
	CgroupOptions []string
	// SwapLimit says that the kernel can limit swap by cgroup, so that a memory limit must
	// forbid it.
	SwapLimit bool
	// Swap is how many bytes of swap Burstable pods share in proportion to their memory requests; 0
	// keeps all containers from swapping. It needs cgroup v2.
	Swap int64
	// SeccompDefault gives containers without a seccomp profile the default one.
	SeccompDefault bool
	// HugePages are the page sizes in bytes that the kernel's hugetlb controller can limit.
	HugePages []int64
	// MinOOMScoreAdj is the lowest oom_score_adj that this process may set.
	MinOOMScoreAdj int
	// Capabilities are those that this process may give to containers; nil is all.
	Capabilities []string
	// AppArmor says whether containers are confined by AppArmor.
	AppArmor bool
	// SELinux says whether the kernel has SELinux. Without it SELinux options have no effect,
	// as under every CRI runtime.
	SELinux bool
	// CPUs is the number of CPUs that the kernel knows, online or not.
	CPUs int
}
