package image

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// meter counts what is read of the files of an archive. A nil meter counts nothing.
type meter struct {
	done, total int64
	onRead      func(done, total int64)
}

// meter returns a meter for OnRead.
func (a Archive) meter() (*meter, error) {
	m := &meter{onRead: a.OnRead}
	if a.OnRead == nil {
		return m, nil
	}
	root, err := filepath.EvalSymlinks(a.Path)
	if err != nil {
		return nil, fmt.Errorf("looking for images: %w", err)
	}
	err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			m.total += info.Size()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for images: %w", err)
	}
	return m, nil
}

// file returns the file, with what is read of it counted.
func (m *meter) file(f *os.File) io.ReadSeekCloser {
	if m == nil || m.onRead == nil {
		return f
	}
	return &meteredFile{f, m}
}

// meteredFile hides the other methods of a file: io.Copy would use them instead of Read.
type meteredFile struct {
	io.ReadSeekCloser
	m *meter
}

func (f *meteredFile) Read(p []byte) (int, error) {
	n, err := f.ReadSeekCloser.Read(p)
	f.m.done = min(f.m.done+int64(n), f.m.total)
	f.m.onRead(f.m.done, f.m.total)
	return n, err
}
