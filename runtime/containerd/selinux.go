package containerd

import (
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/mount"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// labelled gives all files of a root file system the SELinux label that the spec asks for.
// Layers are shared, so their files cannot have it themselves. A root file system that is not
// an overlay is the container's own copy, which keeps the label of its directory.
func labelled(mounts []mount.Mount, spec *specs.Spec) []mount.Mount {
	if spec.Linux == nil || spec.Linux.MountLabel == "" {
		return mounts
	}
	all := slices.Clone(mounts)
	for i := range all {
		if all[i].Type == "overlay" {
			all[i].Options = append(slices.Clone(all[i].Options), fmt.Sprintf("context=%q", spec.Linux.MountLabel))
		}
	}
	return all
}
