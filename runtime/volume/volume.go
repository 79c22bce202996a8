// Package volume makes and removes the directories, files and mounts of a pod's volumes, in
// the kubelet's layout below Root/pods/UID.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// Manager makes the volumes of pods. Its fields must not change while it is in use; it is
// safe for concurrent use on different pods.
type Manager struct {
	// Root is the directory that holds pods/UID/volumes.
	Root string
	// Objects are those that volumes refer to. If they implement Tokens, pods can have tokens of
	// service accounts.
	Objects podspec.Objects
	// ClaimsDir holds the data of claims without a PersistentVolume as NAMESPACE/NAME, which
	// outlives the pods. Empty refuses such claims.
	ClaimsDir string
	// Allocatable is what pods can use on the node: it limits emptyDir volumes in memory, and
	// is the default of limits in a downwardAPI volume.
	Allocatable v1.ResourceList
	Mounter     Mounter
	// RecursiveReadOnly reports whether the pod's OCI runtime supports the mount option rro;
	// nil is no. It is called only when a volumeMount depends on it.
	RecursiveReadOnly func(pod *v1.Pod) bool
}

// The directories below a pod's that this package owns.
const (
	volumesDir  = "volumes"
	subpathsDir = "volume-subpaths"
	idmapDir    = "volume-idmaps" // mounts for pods with a user namespace
	shmDir      = "shm"
	// podDirMode keeps other users of the host out: volumes themselves are open to all.
	podDirMode = 0o750
)

// Setup makes every volume of the pod, and the /dev/shm that its containers share. It is
// safe to repeat: the content of an emptyDir is kept, and so are the files of ConfigMaps and
// Secrets.
func (m *Manager) Setup(ctx context.Context, pod *v1.Pod) error {
	if err := checkUID(pod); err != nil {
		return err
	}
	if err := m.shm(pod); err != nil {
		return fmt.Errorf("setting up /dev/shm: %w", err)
	}
	for i := range pod.Spec.Volumes {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := &pod.Spec.Volumes[i]
		if err := m.setup(ctx, pod, v); err != nil {
			return fmt.Errorf("setting up volume %q: %w", v.Name, err)
		}
	}
	return nil
}

// setup makes one volume.
func (m *Manager) setup(ctx context.Context, pod *v1.Pod, v *v1.Volume) error {
	s, err := m.source(pod, v)
	switch {
	case err != nil:
		return err
	case s.HostPath != nil:
		return checkHostPath(s.HostPath)
	case s.EmptyDir != nil:
		return m.emptyDir(pod, v)
	case s.ConfigMap != nil, s.Secret != nil, s.DownwardAPI != nil, s.Projected != nil:
		return m.files(ctx, pod, v)
	case s.NFS != nil:
		return m.nfs(ctx, s)
	case s.GCEPersistentDisk != nil:
		return m.disk(ctx, pod, s)
	case s.Image != nil:
		return nil // mounted when a container that uses it is started
	case s.local:
		return m.local(pod, s)
	case s.claim != nil:
		return m.claimDir(pod, s)
	}
	return failure.FailedMountf("unsupported volume type")
}

// ImageDir makes and returns the directory for mounting the image of an image volume.
func (m *Manager) ImageDir(pod *v1.Pod, v *v1.Volume) (string, error) {
	if err := checkUID(pod); err != nil {
		return "", err
	}
	dir := m.path(pod, v)
	return dir, makeDir(dir, podDirMode)
}

// Teardown unmounts and removes the pod's volumes, but never the content of a hostPath.
// Absent volumes are not an error.
func (m *Manager) Teardown(_ context.Context, pod *v1.Pod) error {
	if err := checkUID(pod); err != nil {
		return err
	}
	m.forgetTokens(pod.UID)
	dirs := []string{m.dir(pod, idmapDir), m.dir(pod, subpathsDir), m.dir(pod, volumesDir)}
	// Most pods have nothing else. To find mounts takes the longer the more pods there are.
	shm := m.dir(pod, shmDir)
	if m.Mounter.Unmount(shm) != nil || removeAll(shm) != nil {
		dirs = append(dirs, shm)
	}
	if err := UnmountBelow(m.Mounter, dirs...); err != nil {
		return fmt.Errorf("unmounting the volumes of pod %q: %w", pod.Name, err)
	}
	var errs []error
	for _, dir := range dirs {
		if err := removeAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("removing the volumes of pod %q: %w", pod.Name, err))
		}
	}
	return errors.Join(errs...)
}

// checkUID refuses a pod whose directory would contain those of others.
func checkUID(pod *v1.Pod) error {
	if uid := string(pod.UID); uid == "" || !filepath.IsLocal(uid) || strings.Contains(uid, "/") || uid == "." {
		return failure.FailedMountf("pod %q has no usable uid: %q", pod.Name, uid)
	}
	return nil
}

// dir returns a path below the pod's directory.
func (m *Manager) dir(pod *v1.Pod, elems ...string) string {
	return filepath.Join(append([]string{m.Root, "pods", string(pod.UID)}, elems...)...)
}

// makeDir makes the directory of a volume with exactly the given mode, in parents that other
// users cannot enter. It appears with its final mode, and an existing one keeps the mode that
// containers may have given it. It is safe to call by several pods that share the directory.
func makeDir(dir string, mode fs.FileMode) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), podDirMode); err != nil {
		return err
	}
	err := makeFresh(dir, mode)
	if _, there := os.Lstat(dir); err != nil && there == nil {
		return nil // another pod was faster
	}
	return err
}

func makeFresh(dir string, mode fs.FileMode) error {
	fresh := dir + ".new"
	if err := os.Mkdir(fresh, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(fresh, mode); err != nil { // the umask may have removed permissions
		return err
	}
	// A plain rename would replace an empty directory, which may be mounted already.
	err := unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EINVAL): // not supported by network file systems
		return os.Rename(fresh, dir)
	case errors.Is(err, unix.EEXIST):
		return os.Remove(fresh)
	case err != nil:
		return &fs.PathError{Op: "rename", Path: dir, Err: err}
	}
	return nil
}
