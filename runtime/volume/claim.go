package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// claimDir makes the directory of a claim without a PersistentVolume. Nothing provisions
// volumes here, so the directory is shared by all pods that name the claim and outlives them;
// that of an ephemeral volume is in the pod's own directory and is removed with it.
func (m *Manager) claimDir(pod *v1.Pod, s source) error {
	name := s.claim.Name
	if s.Ephemeral == nil {
		if m.ClaimsDir == "" {
			return failure.FailedMountf("persistentVolumeClaim %q: no directory for claims is set", name)
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
	if err := makeDir(s.path, volumeMode); err != nil {
		return err
	}
	return setVolumeOwnership(pod, s.path, s.readOnly, true)
}

// local checks the directory of a local PersistentVolume, which must exist
// (pkg/volume/local). It may be mounted later, so the error is not permanent.
func (m *Manager) local(pod *v1.Pod, s source) error {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("path %q does not exist", s.path)
	case err != nil:
		return err
	case !info.IsDir():
		err = fmt.Errorf("path %q is not a directory: mount the device and name the directory", s.path)
	default:
		return setVolumeOwnership(pod, s.path, s.readOnly, true)
	}
	return &failure.Error{Why: failure.ReasonFailedMount, Err: err}
}
