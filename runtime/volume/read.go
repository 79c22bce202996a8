package volume

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// maxReadFile is the size limit of ReadFile in bytes.
const maxReadFile = 1 << 20

// ReadFile returns the content of a file in one of the pod's volumes. Containers can write
// there: links cannot lead out of the volume, and anything but a regular file of at most a
// mebibyte is an error.
func (m *Manager) ReadFile(pod *v1.Pod, volume, path string) ([]byte, error) {
	v := volumeNamed(pod, volume)
	if v == nil {
		return nil, failure.FailedMountf("cannot find volume %q", volume)
	}
	from, err := m.source(pod, v)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(from.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	// Without the flag, opening a FIFO would wait for a writer.
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxReadFile+1))
	if err == nil && len(data) > maxReadFile {
		err = fmt.Errorf("longer than %d bytes", maxReadFile)
	}
	return data, err
}
