package volume

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// The permissions that fsGroup adds (pkg/volume.SetVolumeOwnership).
const (
	groupReadWrite = fs.FileMode(0o660)
	groupReadOnly  = fs.FileMode(0o440)
	groupDir       = fs.ModeSetgid | 0o110
)

// setVolumeOwnership gives the volume in dir to the pod's fsGroup, if it has one: the group
// may read, and write unless it is read-only, and new files in directories belong to the
// group too. With the policy OnRootMismatch a persistent volume is left as it is when its
// root is right already; ephemeral ones are always walked.
func setVolumeOwnership(pod *v1.Pod, dir string, readOnly, persistent bool) error {
	s := pod.Spec.SecurityContext
	if s == nil || s.FSGroup == nil {
		return nil
	}
	o := ownership{gid: int(*s.FSGroup), mode: groupReadWrite}
	if readOnly {
		o.mode = groupReadOnly
	}
	onMismatch := persistent && s.FSGroupChangePolicy != nil && *s.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	if err := o.apply(dir, onMismatch); err != nil {
		return fmt.Errorf("changing the group of the volume to %d: %w", o.gid, err)
	}
	return nil
}

// ownership is the group of a volume and the permissions that it gets.
type ownership struct {
	gid  int
	mode fs.FileMode
}

// apply walks the directory. A container that writes to it at the same time may create
// links: an os.Root cannot be left through them, and it is the links themselves that change
// group, never their targets.
func (o ownership) apply(dir string, onlyMismatch bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if onlyMismatch {
		info, err := root.Stat(".")
		if err != nil || o.matches(info) {
			return err
		}
	}
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := root.Lchown(path, -1, o.gid); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return err
		}
		mode := o.mode
		if d.IsDir() {
			mode |= groupDir
		}
		return root.Chmod(path, info.Mode()|mode)
	})
}

// matches reports whether a directory has the ownership already.
func (o ownership) matches(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	want := o.mode | groupDir
	return ok && int(st.Gid) == o.gid && info.Mode()&want == want
}
