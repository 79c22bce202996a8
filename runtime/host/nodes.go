package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// DeviceNodes lists the device nodes below dir (/dev) for a privileged container
// (containerd's oci.WithHostDevices). Those that disappear in the meantime are left out.
func DeviceNodes(dir string) ([]specs.LinuxDevice, error) {
	var found []specs.LinuxDevice
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir() && skippedDir(e.Name()):
			return fs.SkipDir
		case e.Type()&fs.ModeDevice == 0 || e.Name() == "console":
			return nil
		}
		d, err := device(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			found = append(found, d)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	return found, nil
}

// skippedDir reports whether a directory of /dev is skipped: every container has its own.
func skippedDir(name string) bool {
	switch name {
	case "pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev":
		return true
	}
	return false
}

func device(path string) (specs.LinuxDevice, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return specs.LinuxDevice{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	kind := "c"
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		kind = "b"
	}
	mode := os.FileMode(st.Mode &^ unix.S_IFMT)
	return specs.LinuxDevice{
		Path: path, Type: kind, Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)),
		FileMode: &mode, UID: &st.Uid, GID: &st.Gid,
	}, nil
}
