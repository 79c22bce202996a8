package volume

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// claim makes the directory of a persistent volume claim. There is nothing that could
// provision a volume here, so a claim is a directory that outlives its pods, the same for
// all that name it.
func (m *Manager) claim(pod *v1.Pod, v *v1.Volume) error {
	if m.ClaimsDir == "" {
		return refusef("persistentVolumeClaim %q: there is no directory for claims", v.PersistentVolumeClaim.ClaimName)
	}
	name := v.PersistentVolumeClaim.ClaimName
	for _, part := range []string{pod.Namespace, name} {
		if !filepath.IsLocal(part) || part != filepath.Base(part) || part == "." {
			return refusef("persistentVolumeClaim %q of namespace %q: not a valid name", name, pod.Namespace)
		}
	}
	dir := m.path(pod, v)
	if err := os.MkdirAll(m.ClaimsDir, podDirMode); err != nil {
		return fmt.Errorf("making the directory for claims: %w", err)
	}
	if err := makeDir(dir, emptyDirMode); err != nil {
		return err
	}
	return m.own(pod, v, dir)
}
