package volume

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

// hostPathRetries is how often a run looks for a path again at most: it is another pod of the run that
// makes it, and that has started within seconds. The kubelet checks forever.
const hostPathRetries = 5

// checkHostPath creates the path or checks its type, as the volume's type requires
// (pkg/volume/hostpath). A failed check may succeed later, when another pod has made the
// path, so it is not permanent, but it is not worth many retries either.
func checkHostPath(s *v1.HostPathVolumeSource) error {
	if slices.Contains(strings.Split(s.Path, "/"), "..") {
		return failure.FailedMountf("hostPath %q must not contain '..'", s.Path)
	}
	if !filepath.IsAbs(s.Path) {
		return failure.FailedMountf("hostPath %q must be an absolute path", s.Path)
	}
	if s.Type == nil || *s.Type == v1.HostPathUnset {
		return nil
	}
	kind, ok := hostPathKinds()[*s.Type]
	if !ok {
		return failure.FailedMountf("hostPath type %q is not a valid host path type", *s.Type)
	}
	if kind.create != nil {
		if err := kind.create(s.Path); err != nil {
			return err
		}
	}
	info, err := os.Stat(s.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || info.Mode().Type() != kind.mode {
		text := fmt.Sprintf("hostPath type check failed: %s is not %s", s.Path, kind.name)
		if err != nil {
			err = fmt.Errorf("%s: %w", text, err)
		} else {
			err = errors.New(text)
		}
		return failure.Limited(hostPathRetries, &failure.Error{Why: failure.ReasonFailedMount, Err: err})
	}
	return nil
}

// hostPathKind is what a type of hostPath requires of its path.
type hostPathKind struct {
	name   string                  // with its article
	mode   fs.FileMode             // its type bits
	create func(path string) error // nil when the path must exist
}

func hostPathKinds() map[v1.HostPathType]hostPathKind {
	return map[v1.HostPathType]hostPathKind{
		v1.HostPathDirectoryOrCreate: {"a directory", fs.ModeDir, createDirIfAbsent},
		v1.HostPathDirectory:         {"a directory", fs.ModeDir, nil},
		v1.HostPathFileOrCreate:      {"a file", 0, createFileIfAbsent},
		v1.HostPathFile:              {"a file", 0, nil},
		v1.HostPathSocket:            {"a socket file", fs.ModeSocket, nil},
		v1.HostPathCharDev:           {"a character device", fs.ModeDevice | fs.ModeCharDevice, nil},
		v1.HostPathBlockDev:          {"a block device", fs.ModeDevice, nil},
	}
}

// createDirIfAbsent also makes the directory of an unchecked path, as CRI runtimes do.
func createDirIfAbsent(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.MkdirAll(path, 0o755)
}

// createFileIfAbsent makes an empty file; its directory must exist.
func createFileIfAbsent(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
