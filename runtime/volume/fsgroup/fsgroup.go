// Package fsgroup gives volumes to the group that a pod asks for.
package fsgroup

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// The permissions that fsGroup adds (pkg/volume.SetVolumeOwnership).
const (
	ReadWrite = fs.FileMode(0o660)
	ReadOnly  = fs.FileMode(0o440)
	ofDirs    = fs.ModeSetgid | 0o110
)

// Wanted says whether the pod has an fsGroup.
func Wanted(pod *v1.Pod) bool {
	return pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.FSGroup != nil
}

// Own gives what is in dir to the pod's fsGroup, when it has one: the group may read, and
// write what is not read-only, and what is made in directories belongs to the group too.
// With the policy OnRootMismatch a claim whose root is right already is left as it is;
// volumes that live as long as the pod are always gone through.
func Own(pod *v1.Pod, dir string, readOnly, claim bool) error {
	if !Wanted(pod) {
		return nil
	}
	o := owner{gid: int(*pod.Spec.SecurityContext.FSGroup), bits: ReadWrite}
	if readOnly {
		o.bits = ReadOnly
	}
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	if err := o.give(dir, claim && policy != nil && *policy == v1.FSGroupChangeOnRootMismatch); err != nil {
		return fmt.Errorf("giving the volume to group %d: %w", o.gid, err)
	}
	return nil
}

// owner is the group that gets a volume, with the permissions that it gets.
type owner struct {
	gid  int
	bits fs.FileMode
}

// give goes through the directory. A container that writes to it at the same time may put
// links in the way: everything is done inside an os.Root, which they cannot leave, and
// links themselves change group, never what they point to.
func (o owner) give(dir string, onlyMismatch bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if onlyMismatch {
		info, err := root.Stat(".")
		if err != nil || o.has(info) {
			return err
		}
	}
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return o.giveOne(root, path, d)
	})
}

// has reports whether a directory is the group's already.
func (o owner) has(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	want := o.bits | ofDirs
	return ok && int(st.Gid) == o.gid && info.Mode()&want == want
}

func (o owner) giveOne(root *os.Root, path string, d fs.DirEntry) error {
	if err := root.Lchown(path, -1, o.gid); err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return err
	}
	bits := o.bits
	if d.IsDir() {
		bits |= ofDirs
	}
	return root.Chmod(path, info.Mode()|bits)
}
