package containerd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/containerd/containerd/v2/core/snapshots"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/runtimeclass"
)

// remapIDs is the capability of a snapshotter to map the users of an image's layers
// (plugins/snapshots/overlay/plugin).
const remapIDs = "remap-ids"

var errNoRemap = errors.New("the snapshotter cannot map user IDs: it takes overlayfs, Linux 5.19 and containerd 2.0")

// CanMapUsers returns why no container can have a user namespace with this containerd, nil
// when it can.
func (e *Engine) CanMapUsers(ctx context.Context) error {
	return e.do(ctx, canMapUsers)
}

// RuntimeFeatures returns the output of the command "features" of a handler's OCI runtime. An
// empty name means the default handler.
func (e *Engine) RuntimeFeatures(ctx context.Context, name string) ([]byte, error) {
	if name == "" {
		name = runtimeclass.Default
	}
	for _, h := range e.o.Handlers {
		if h.Name == name && h.Binary != "" {
			return exec.CommandContext(ctx, h.Binary, "features").Output()
		}
	}
	return nil, fmt.Errorf("runtime handler %q has no program to ask", name)
}

func canMapUsers(ctx context.Context, s *session) error {
	all, err := s.GetSnapshotterCapabilities(ctx, s.Snapshotter)
	if err != nil {
		return fmt.Errorf("asking snapshotter %q what it can do: %w", s.Snapshotter, errs.Native(err))
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
