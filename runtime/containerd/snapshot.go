package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
)

// rootfs prepares the container's own layer.
func (e *Engine) rootfs(ctx context.Context, s *session, c engine.ContainerConfig, img *images.Image) ([]mount.Mount, error) {
	if c.Pause {
		return pauseRootfs(c.Spec), nil
	}
	opts, err := mapped(ctx, s, c.Spec)
	if err != nil {
		return nil, err
	}
	mounts, err := s.Snapshots().Prepare(ctx, c.ID, img.ChainID, opts...)
	if err != nil && ctx.Err() == nil {
		// A crash has left a snapshot, or only its directory, which the failure removes; or the image
		// was removed and pulled again since it was read.
		e.images.Forget(c.Image)
		if err = images.IgnoreNotFound(s.Snapshots().Remove(ctx, c.ID)); err == nil {
			img, err = e.images.Get(ctx, s.Conn, c.Image)
		}
		if err == nil {
			mounts, err = s.Snapshots().Prepare(ctx, c.ID, img.ChainID, opts...)
		}
	}
	if err != nil {
		return nil, &failure.Error{Why: failure.ReasonCreateError, Err: fmt.Errorf("preparing its root file system: %w", images.NativeError(err))}
	}
	return labelled(mounts, c.Spec), nil
}

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

// remapIDs is the capability of a snapshotter to map the users of an image's layers
// (plugins/snapshots/overlay/plugin).
const remapIDs = "remap-ids"

var errNoRemap = errors.New("the snapshotter cannot map user IDs: it takes overlayfs, Linux 5.19 and containerd 2.0")

// CanMapUsers returns why no container can have a user namespace with this containerd, nil
// when it can.
func (e *Engine) CanMapUsers(ctx context.Context) error {
	return e.do(ctx, canMapUsers)
}

func canMapUsers(ctx context.Context, s *session) error {
	all, err := s.GetSnapshotterCapabilities(ctx, s.Snapshotter)
	if err != nil {
		return fmt.Errorf("asking snapshotter %q what it can do: %w", s.Snapshotter, images.NativeError(err))
	}
	if !slices.Contains(all, remapIDs) {
		return fmt.Errorf("%s: %w", s.Snapshotter, errNoRemap)
	}
	return nil
}

// mapped returns the options of a snapshot for a container in a user namespace.
func mapped(ctx context.Context, s *session, spec *specs.Spec) ([]snapshots.Opt, error) {
	if spec.Linux == nil || len(spec.Linux.UIDMappings) == 0 {
		return nil, nil
	}
	if err := canMapUsers(ctx, s); err != nil {
		return nil, &failure.Error{Why: failure.ReasonCreateError, Final: errors.Is(err, errNoRemap), Err: err}
	}
	return []snapshots.Opt{snapshots.WithLabels(map[string]string{
		snapshots.LabelSnapshotUIDMapping: label(spec.Linux.UIDMappings),
		snapshots.LabelSnapshotGIDMapping: label(spec.Linux.GIDMappings),
	})}, nil
}

// label formats a mapping for snapshotters.
func label(ids []specs.LinuxIDMapping) string {
	return fmt.Sprintf("%d:%d:%d", ids[0].ContainerID, ids[0].HostID, ids[0].Size)
}

// Usage returns the size of the layer that the container writes to, in bytes. One that
// does not exist has size 0.
func (e *Engine) Usage(ctx context.Context, id string) (int64, error) {
	var size int64
	err := e.do(ctx, func(ctx context.Context, s *session) error {
		used, err := s.Snapshots().Usage(ctx, id)
		size = used.Size
		return images.IgnoreNotFound(err)
	})
	if err != nil {
		return 0, fmt.Errorf("measuring the layer of container %q: %w", id, err)
	}
	return size, nil
}
