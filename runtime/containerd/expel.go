package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/mount"
	shims "github.com/containerd/containerd/v2/core/runtime/v2"
	"github.com/containerd/typeurl/v2"

	"github.com/runonce/runonce/runtime/containerd/embed"
	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/link"
)

// expel removes what is left of a container of which the embedded containerd knows no task.
// It forgets a task whose shim would not delete it when it connected
// (core/runtime/v2.ShimManager.loadShim): then the shim, which goes on, knows of it alone, or
// the OCI runtime, when there is no shim any more.
func (e *Engine) expel(ctx context.Context, s *link.Session, id, podUID string) error {
	if s.Spawn == nil || podUID == "" || e.foreign(id) {
		return nil
	}
	killed, err := s.Spawn.Expel(ctx, podUID, id)
	if err != nil {
		return err
	}
	if killed {
		e.o.Log.Warn("a shim that did not remove its container was killed", "container", id)
	}
	// The state of runc and of those like it.
	if killed || exists(filepath.Join(link.RuntimeRoot(e.o.State), e.o.Namespace, id)) {
		return e.runcDelete(ctx, s, id)
	}
	return nil
}

// removeBundle removes what is left of the bundle of a task that is no more: the embedded
// containerd tries but once, also when a shim is still mounting there, or its runc making
// directories by their whole paths.
func (e *Engine) removeBundle(ctx context.Context, s *link.Session, id string) error {
	if s.Spawn == nil {
		return nil
	}
	bundle, err := shims.LoadBundle(ctx, embed.TasksDir(e.o.State), id)
	if err != nil {
		return err
	}
	// It is being removed under another name.
	hidden := filepath.Join(filepath.Dir(bundle.Path), "."+id)
	for _, path := range []string{filepath.Join(bundle.Path, "rootfs"), hidden} {
		if err == nil && exists(path) {
			err = unmountAndRemove(path)
		}
	}
	if err == nil && exists(bundle.Path) {
		err = bundle.Delete()
	}
	if err != nil {
		return fmt.Errorf("removing its bundle: %w", err)
	}
	return nil
}

// unmountAndRemove removes nothing of what cannot be unmounted.
func unmountAndRemove(path string) error {
	if err := mount.UnmountRecursive(path, 0); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// runcDelete has the OCI runtime kill and delete the container, in place of its shim.
func (e *Engine) runcDelete(ctx context.Context, s *link.Session, id string) error {
	rec, err := s.ContainerService().Get(ctx, id)
	if err != nil {
		if errs.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("looking for its OCI runtime: %w", errs.Native(err))
	}
	var o runcoptions.Options
	if err := typeurl.UnmarshalTo(rec.Runtime.Options, &o); err != nil {
		return fmt.Errorf("looking for its OCI runtime: %w", err)
	}
	out, err := exec.CommandContext(ctx, o.BinaryName, "--root", filepath.Join(o.Root, e.o.Namespace), "delete", "--force", id).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "does not exist") {
		return fmt.Errorf("deleting it by its OCI runtime: %w", errors.Join(errors.New(strings.TrimSpace(string(out))), err))
	}
	return nil
}
