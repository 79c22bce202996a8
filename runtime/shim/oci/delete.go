package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Delete deletes a container that has ended, or may be gone. What "delete" of runc and crun does with one whose cgroups
// they made themselves is to remove those and the directory with its state, but it is a whole run of the program. When
// anything is not as expected, the runtime does it, or reports what is wrong.
func (r *Runtime) Delete(ctx context.Context, id string, spec Spec) error {
	if state := filepath.Join(r.Root, id); !r.SystemdCgroup && spec.plain(id) && known(state) && removeCgroups(spec.Linux.CgroupsPath) {
		if err := os.RemoveAll(state); err == nil {
			return nil
		}
	}
	return r.delete(ctx, id, id)
}

// plain reports whether a container leaves nothing but cgroups of its own and its state.
func (s Spec) plain(id string) bool {
	return len(s.Hooks.Poststop) == 0 && s.Linux.IntelRdt == nil &&
		filepath.IsAbs(s.Linux.CgroupsPath) && filepath.Base(s.Linux.CgroupsPath) == id
}

// known reports whether a directory has the state of a container of runc or crun, and nothing else, such as a mount.
func known(state string) bool {
	entries, err := os.ReadDir(state)
	return err == nil && len(entries) > 0 && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return !slices.Contains([]string{"state.json", "status", "config.json", "exec.fifo"}, e.Name())
	})
}

// removeCgroups removes the cgroup at the path in each hierarchy that has it. It reports whether there was one, and none
// is left, as one would be that has a process or another cgroup.
func removeCgroups(path string) (removed bool) {
	const root = "/sys/fs/cgroup"
	hierarchies := []string{root}
	if !isCgroup(root) { // version 1
		hierarchies, _ = filepath.Glob(root + "/*")
	}
	for _, h := range hierarchies {
		if !isCgroup(h) {
			continue
		}
		switch err := unix.Rmdir(filepath.Join(h, path)); {
		case err == nil:
			removed = true
		case !errors.Is(err, fs.ErrNotExist):
			return false
		}
	}
	return removed
}

// isCgroup reports whether a directory is in a hierarchy of cgroups.
func isCgroup(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && (s.Type == unix.CGROUP_SUPER_MAGIC || s.Type == unix.CGROUP2_SUPER_MAGIC)
}

// DeleteForced also deletes a container that runs, or that was not completely created.
func (r *Runtime) DeleteForced(ctx context.Context, id string) error {
	UnmountRuntime(filepath.Join(r.Root, id))
	return r.delete(ctx, id, "--force", id)
}

func (r *Runtime) delete(ctx context.Context, id string, args ...string) error {
	_, err := r.Run(ctx, Command{Args: append([]string{"delete"}, args...)})
	if err == nil || strings.Contains(err.Error(), "does not exist") {
		return nil
	}
	// An earlier command that was killed may have deleted it. For crun, that is an error.
	if _, serr := os.Lstat(filepath.Join(r.Root, id)); errors.Is(serr, fs.ErrNotExist) {
		return nil
	}
	return err
}

// UnmountRuntime unmounts the program of runc in the directory with the state of a container. Runc 1.1
// mounts it there for a moment (nsenter's cloned_binary.c). If it is killed then, it can neither
// delete the directory nor create the container again.
func UnmountRuntime(state string) {
	entries, err := os.ReadDir(state)
	if err != nil {
		return // there is nothing
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "runc.") {
			_ = unix.Unmount(filepath.Join(state, e.Name()), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
}
