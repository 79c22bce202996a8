package containerd

import (
	"context"
	"fmt"
	"slices"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/containerd/v2/core/mount"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

// pausePath is the path of the program inside a pause container.
const pausePath = "/pause"

// imageOf returns the image of the container, an empty one for a pause container.
func (e *Engine) imageOf(ctx context.Context, s *session, c engine.ContainerConfig) (*images.Image, error) {
	if c.Pause {
		return &images.Image{}, nil
	}
	return e.images.Get(ctx, s.Conn, c.Image)
}

// pauseSpec makes the shim's binary the program of the container.
func pauseSpec(spec *specs.Spec, shim string) {
	spec.Process.Args = []string{pausePath, protocol.PauseArg}
	spec.Mounts = append(slices.Clone(spec.Mounts), specs.Mount{
		Destination: pausePath, Type: "bind", Source: shim, Options: []string{"bind", "rprivate", "ro"},
	})
}

// pauseRootfs is a file system for the mount points only. It belongs to the root user of the
// container's user namespace, who makes them.
func pauseRootfs(spec *specs.Spec) []mount.Mount {
	options := []string{"nosuid", "nodev", "mode=755", "size=64k"}
	if spec.Linux != nil && len(spec.Linux.UIDMappings) > 0 {
		root := spec.Linux.UIDMappings[0].HostID
		options = append(options, fmt.Sprintf("uid=%d,gid=%d", root, root))
	}
	return []mount.Mount{{Type: "tmpfs", Source: "tmpfs", Options: options}}
}
