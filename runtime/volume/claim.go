package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/volume/emptydir"
	"github.com/runonce/runonce/runtime/volume/fsgroup"
)

// claimed makes the directory of a claim that has no volume of its own. There is nothing
// that could provision one here, so it is a directory that outlives its pods, the same for
// all that name the claim; one of an ephemeral volume is in the pod's own directory and
// goes with it.
func (m *Manager) claimed(pod *v1.Pod, s source) error {
	name := s.claim.Name
	if s.Ephemeral == nil {
		if m.ClaimsDir == "" {
			return failure.FailedMountf("persistentVolumeClaim %q: there is no directory for claims", name)
		}
		for _, part := range []string{pod.Namespace, name} {
			if !filepath.IsLocal(part) || part != filepath.Base(part) || part == "." {
				return failure.FailedMountf("persistentVolumeClaim %q of namespace %q: not a valid name", name, pod.Namespace)
			}
		}
		if err := os.MkdirAll(m.ClaimsDir, podDirMode); err != nil {
			return fmt.Errorf("making the directory for claims: %w", err)
		}
	}
	if err := makeDir(s.path, emptydir.DefaultMode); err != nil {
		return err
	}
	return fsgroup.Own(pod, s.path, s.readOnly, true)
}

// local checks the directory of a local PersistentVolume, which must be there
// (pkg/volume/local). It may yet be mounted, so that a fault is not permanent.
func (m *Manager) local(pod *v1.Pod, s source) error {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unusable("path %q does not exist", s.path)
	case err != nil:
		return err
	case !info.IsDir():
		return unusable("path %q is not a directory: mount the device and name the directory", s.path)
	}
	return fsgroup.Own(pod, s.path, s.readOnly, true)
}

// unusable says why the directory of a local volume cannot be used as it is now.
func unusable(format string, args ...any) error {
	return &failure.Error{Why: failure.ReasonFailedMount, Err: fmt.Errorf(format, args...)}
}
