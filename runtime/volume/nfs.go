package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/volume/mount"
)

// nfs mounts an NFS export. As in the kubelet, fsGroup does not change it.
func (m *Manager) nfs(ctx context.Context, from source) error {
	if err := makeDir(from.path, podDirMode); err != nil {
		return err
	}
	mounted, err := m.mounter().Mounted(from.path)
	if err != nil || mounted {
		return err
	}
	server := from.NFS.Server
	if strings.Contains(server, ":") && !strings.HasPrefix(server, "[") {
		server = "[" + server + "]" // an IPv6 address
	}
	r := mount.Remote{Kind: "nfs", Source: server + ":" + from.NFS.Path, Target: from.path}
	if from.readOnly {
		r.Options = []string{"ro"}
	}
	r.Options = append(r.Options, from.mountOptions...)
	err = m.mounter().MountRemote(ctx, r)
	if errors.Is(err, mount.ErrNoHelper) {
		return failure.FailedMountf("%w", err)
	}
	if err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	return nil
}
