package podspec

import v1 "k8s.io/api/core/v1"

// NodeFile is a file that a node mounts in a container, in addition to the pod's volumes.
type NodeFile struct {
	Path string
	// Remedy says what to do if a volume is in the way.
	Remedy string
}

// NodeFiles returns the files that a node mounts in the container where no volume is mounted: those of
// CRI runtimes (internal/cri/server/container_create_linux.go of containerd), and those of the
// kubelet (pkg/kubelet/kubelet_pods.go).
func NodeFiles(c *v1.Container) []NodeFile {
	const files = "mount only single files of the volume, with subPath"
	all := []NodeFile{{"/etc/hostname", files}, {"/etc/hosts", files}, {"/etc/resolv.conf", files}}
	if c.TerminationMessagePath != "" {
		all = append(all, NodeFile{c.TerminationMessagePath, "set terminationMessagePath to a path outside of the volume"})
	}
	return all
}
