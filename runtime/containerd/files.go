package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"

	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

var (
	errNotStarted   = errors.New("it has not been started")
	errOutOfReach   = errors.New("its runtime keeps its files to itself")
	errEndsMeantime = errors.New("its process has ended meanwhile")
)

// Files opens the file system of a container: through its first process, or from its snapshot and
// the mounts of its spec if that has ended.
func (e *Engine) Files(ctx context.Context, id string, write bool) (f engine.Files, err error) {
	err = e.do(ctx, func(ctx context.Context, s *session) error {
		f, err = e.files(ctx, s, id, write)
		if errors.Is(err, errEndsMeantime) {
			f, err = e.files(ctx, s, id, write)
		}
		return err
	})
	if err != nil {
		return engine.Files{}, fmt.Errorf("opening the files of container %q: %w", id, err)
	}
	return f, nil
}

func (e *Engine) files(ctx context.Context, s *session, id string, write bool) (engine.Files, error) {
	record, err := s.ContainerService().Get(ctx, id)
	if err != nil {
		return engine.Files{}, err
	}
	var spec specs.Spec
	if err := typeurl.UnmarshalTo(record.Spec, &spec); err != nil {
		return engine.Files{}, fmt.Errorf("reading its spec: %w", err)
	}
	var f engine.Files
	if spec.Linux != nil && len(spec.Linux.UIDMappings) > 0 {
		f.UserNS, f.FirstID = true, spec.Linux.UIDMappings[0].HostID
	}
	mounts, err := s.SnapshotService(record.Snapshotter).Mounts(ctx, record.SnapshotKey)
	if err != nil {
		return f, fmt.Errorf("looking for its root file system: %w", images.NativeError(err))
	}
	root, namespace, err := e.rootOfProcess(ctx, s, id, mounts)
	if errors.Is(err, engine.ErrNotFound) {
		root, namespace, err = ended{filepath.Join(e.o.State, "files"), &spec, mounts, write}.mounted()
	}
	if err != nil {
		return f, err
	}
	f.Root = root
	// Mounts are no longer connected when their namespace has gone.
	f.Close = func() error { return errors.Join(root.Close(), namespace.Close()) }
	return f, nil
}

// rootOfProcess returns handles of the root directory of a container's first process and of its mount namespace. Of one
// that has ended it is ErrNotFound. A third-party shim may run it in a virtual machine: then its process is another one.
func (e *Engine) rootOfProcess(ctx context.Context, s *session, id string, rootfs []mount.Mount) (root, namespace *os.File, err error) {
	known, _, _ := e.containers.get(id)
	if known.State == engine.StateExited || known.State == engine.StateUnknown {
		return nil, nil, engine.ErrNotFound
	}
	before, err := processOf(ctx, s, id)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.OpenFile(fmt.Sprintf("/proc/%d", before), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, unlessEnded(err)
	}
	defer func() { _ = dir.Close() }()
	// So that it is no other process which has got the number since.
	if after, err := processOf(ctx, s, id); err != nil || after != before {
		return nil, nil, errors.Join(err, errEndsMeantime)
	}
	if namespace, err = openIn(dir, "ns/mnt", unix.O_RDONLY); err != nil {
		return nil, nil, unlessEnded(err)
	}
	if root, err = openIn(dir, "root", unix.O_PATH|unix.O_DIRECTORY); err == nil {
		err = isApart(namespace)
	}
	if err == nil && e.thirdParty(id) {
		err = hasRootfs(dir, rootfs)
	}
	if err = unlessEnded(err); err != nil {
		_ = namespace.Close()
		if root != nil {
			_ = root.Close()
		}
		return nil, nil, err
	}
	return root, namespace, nil
}

// processOf returns the ID of the container's first process on the host.
func processOf(ctx context.Context, s *session, id string) (int, error) {
	t, err := s.task(ctx, id)
	if err := images.IgnoreNotFound(err); err != nil {
		return 0, err
	}
	switch {
	case err != nil || t.Status == tasktypes.Status_STOPPED:
		return 0, engine.ErrNotFound
	case t.Status == tasktypes.Status_CREATED:
		return 0, errNotStarted
	}
	return int(t.Pid), nil
}

// isApart refuses a process that shares the mounts of this one, such as a virtual machine with the container in it.
func isApart(namespace *os.File) error {
	theirs, err := namespace.Stat()
	if err != nil {
		return err
	}
	ours, err := os.Stat("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if os.SameFile(theirs, ours) {
		return errOutOfReach
	}
	return nil
}

// hasRootfs refuses a process, of which dir is the directory in /proc, whose root file system is not the container's.
func hasRootfs(dir *os.File, rootfs []mount.Mount) error {
	text, err := openIn(dir, "mountinfo", unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = text.Close() }()
	roots, err := mountinfo.GetMountsFromReader(text, mountinfo.SingleEntryFilter("/"))
	if err != nil {
		return err
	}
	if len(rootfs) == 1 && rootfs[0].Type == "overlay" && !slices.ContainsFunc(roots, layersOf(rootfs[0].Options).isMountedAt) {
		return errOutOfReach
	}
	return nil
}

// unlessEnded tells the error of a process that has ended from others.
func unlessEnded(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errEndsMeantime
	}
	return err
}

// openIn opens a path below a directory.
func openIn(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
