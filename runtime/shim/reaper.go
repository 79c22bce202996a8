package shim

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/runc"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
)

// reaper is containerd's shim manager with a short way for the usual case of "delete":
// containerd asks for it after every orderly end of a container too, when nothing is left
// to do, and the long way runs runc.
type reaper struct {
	shim.Shim
}

// Stop removes what a dead shim left of a container.
func (r reaper) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return r.Shim.Stop(ctx, id)
	}
	bundle := filepath.Join(filepath.Dir(cwd), id)
	if !deleted(ctx, bundle, id) {
		return r.Shim.Stop(ctx, id)
	}
	if err := mount.UnmountRecursive(filepath.Join(bundle, "rootfs"), 0); err != nil {
		return r.Shim.Stop(ctx, id)
	}
	status := shim.StopStatus{ExitedAt: time.Now(), ExitStatus: 128 + 9}
	if e, err := runc.ReadExitStatus(bundle); err == nil {
		status = shim.StopStatus{ExitedAt: e.Timestamp, ExitStatus: e.Status, Pid: e.Pid}
	}
	return status, nil
}

// deleted reports whether runc has no such container any more.
func deleted(ctx context.Context, bundle, id string) bool {
	ns, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return false
	}
	opts, err := runc.ReadOptions(bundle)
	if err != nil || opts == nil || opts.Root == "" {
		return false
	}
	_, err = os.Stat(filepath.Join(opts.Root, ns, id))
	return errors.Is(err, fs.ErrNotExist)
}
