package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/volume"
)

// relabel gives the pod's own files an SELinux label, as CRI runtimes do for the mounts that
// the kubelet asks them to relabel. hostPath volumes and claims are elsewhere and keep theirs, and
// so do NFS exports and images. A file system without labels is left as it is.
func (p *Pods) relabel(uid types.UID, label string) error {
	dir := p.o.Records.Dir(uid)
	paths, err := filepath.Glob(filepath.Join(dir, terminationLogs+"*"))
	if err != nil {
		return fmt.Errorf("looking for the termination messages of the pod: %w", err)
	}
	for _, name := range []string{"volumes", declaredDir, "shm", hostsFile, resolvFile, hostnameFile} {
		paths = append(paths, filepath.Join(dir, name))
	}
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			if err == nil && (d.Name() == volume.NFSDir || d.Name() == volume.ImagesDir) {
				return fs.SkipDir
			}
			if err == nil {
				err = unix.Lsetxattr(path, "security.selinux", []byte(label+"\x00"), 0)
			}
			if errors.Is(err, unix.ENOTSUP) || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("labelling the volumes of the pod with %q: %w", label, err)
		}
	}
	return nil
}
