package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/runonce/runonce/internal/failure"
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
	if err != nil && !errors.Is(err, errNoNFS) {
		err = fmt.Errorf("mounting: %w", err)
	}
	return err
}

// errNoNFS says that the machine cannot mount NFS exports.
var errNoNFS = failure.FailedMountf("mount.nfs is not installed")

// MountNFS runs the helper mount.nfs as mount(8) does.
func (HostMounts) MountNFS(ctx context.Context, source, target string, options []string) error {
	helper, err := nfsHelper()
	if err != nil {
		return err
	}
	args := []string{source, target}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, helper, args...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mount.nfs %s: %w: %s", source, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// HasNFS reports whether the machine can mount NFS exports.
func HasNFS() bool {
	_, err := nfsHelper()
	return err == nil
}

func nfsHelper() (string, error) {
	path, err := helper("mount.nfs")
	if errors.Is(err, exec.ErrNotFound) {
		err = errNoNFS
	}
	return path, err
}

// helper finds a program, which need not be in the PATH. The error is exec.ErrNotFound if there is none.
func helper(name string) (string, error) {
	for _, dir := range []string{"", "/sbin/", "/usr/sbin/"} {
		path, err := exec.LookPath(dir + name)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", exec.ErrNotFound
}
