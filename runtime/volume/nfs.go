package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/runonce/runonce/runtime/volume/mount"
)

// nfs mounts an NFS export. As in the kubelet, fsGroup does not change it.
func (m *Manager) nfs(ctx context.Context, s source) error {
	if err := makeDir(s.path, podDirMode); err != nil {
		return err
	}
	mounted, err := m.Mounter.Mounted(s.path)
	if err != nil || mounted {
		return err
	}
	server := s.NFS.Server
	if strings.Contains(server, ":") && !strings.HasPrefix(server, "[") {
		server = "[" + server + "]" // an IPv6 address
	}
	options := s.mountOptions
	if s.readOnly {
		options = append([]string{"ro"}, options...)
	}
	err = m.Mounter.MountNFS(ctx, server+":"+s.NFS.Path, s.path, options)
	if err != nil && !errors.Is(err, mount.ErrNoNFS) {
		err = fmt.Errorf("mounting: %w", err)
	}
	return err
}
