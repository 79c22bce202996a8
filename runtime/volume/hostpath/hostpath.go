// Package hostpath makes and checks the paths of the host that pods mount.
package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// Check makes the path or checks its type, as the type asks
// (pkg/volume/hostpath). A failed check may be mended by another pod, so that it is not
// permanent, but not worth many tries either.
func Check(s *v1.HostPathVolumeSource) error {
	if slices.Contains(strings.Split(s.Path, "/"), "..") {
		return failure.FailedMountf("hostPath %q must not contain '..'", s.Path)
	}
	if !filepath.IsAbs(s.Path) {
		return failure.FailedMountf("hostPath %q must be an absolute path", s.Path)
	}
	if s.Type == nil {
		return nil
	}
	switch *s.Type {
	case v1.HostPathUnset:
		return nil
	case v1.HostPathDirectoryOrCreate:
		if err := createIfAbsent(s.Path, func() error { return os.MkdirAll(s.Path, 0o755) }); err != nil {
			return err
		}
		return checkType(s.Path, "a directory", fs.FileMode.IsDir)
	case v1.HostPathFileOrCreate:
		if err := createIfAbsent(s.Path, func() error { return createFile(s.Path) }); err != nil {
			return err
		}
		return checkType(s.Path, "a file", fs.FileMode.IsRegular)
	case v1.HostPathDirectory:
		return checkType(s.Path, "a directory", fs.FileMode.IsDir)
	case v1.HostPathFile:
		return checkType(s.Path, "a file", fs.FileMode.IsRegular)
	case v1.HostPathSocket:
		return checkType(s.Path, "a socket file", func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 })
	case v1.HostPathCharDev:
		return checkType(s.Path, "a character device", func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 })
	case v1.HostPathBlockDev:
		return checkType(s.Path, "a block device", func(m fs.FileMode) bool {
			return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0
		})
	}
	return failure.FailedMountf("hostPath type %q is not a valid host path type", *s.Type)
}

func createIfAbsent(path string, create func() error) error {
	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return create()
}

// createFile makes an empty file; its directory must exist.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func checkType(path, kind string, is func(fs.FileMode) bool) error {
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || !is(info.Mode()) {
		return &TypeError{Path: path, Kind: kind}
	}
	return nil
}

// TypeError says that a host path is not of the kind that the manifest wants, or absent.
type TypeError struct {
	Path string
	Kind string // with its article, as in "a directory"
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("hostPath type check failed: %s is not %s", e.Path, e.Kind)
}

// Reason is the kubelet's for every error of a volume.
func (e *TypeError) Reason() string { return failure.ReasonFailedMount }

// retries is how often a run looks again: what makes the path is another pod of the run, and
// that has started within seconds. The kubelet looks for ever.
const retries = 5

// Retries returns how many tries more make sense at most.
func (e *TypeError) Retries() int { return retries }

// Ensure makes the directory of an unchecked path that does not exist, as CRI runtimes do.
func Ensure(s *v1.HostPathVolumeSource) error {
	if _, err := os.Stat(s.Path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.MkdirAll(s.Path, 0o755)
}
