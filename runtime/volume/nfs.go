package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/volume/mount"
)

// nfs mounts an NFS export, which fsGroup leaves alone as the kubelet does.
func (m *Manager) nfs(ctx context.Context, pod *v1.Pod, v *v1.Volume) error {
	dir := m.path(pod, v)
	if err := makeDir(dir, podDirMode); err != nil {
		return err
	}
	mounted, err := m.mounter().Mounted(dir)
	if err != nil || mounted {
		return err
	}
	server := v.NFS.Server
	if strings.Contains(server, ":") && !strings.HasPrefix(server, "[") {
		server = "[" + server + "]" // an IPv6 address
	}
	r := mount.Remote{Kind: "nfs", Source: server + ":" + v.NFS.Path, Target: dir}
	if v.NFS.ReadOnly {
		r.Options = []string{"ro"}
	}
	err = m.mounter().MountRemote(ctx, r)
	if errors.Is(err, mount.ErrNoHelper) {
		return &Error{Err: err}
	}
	if err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	return nil
}
