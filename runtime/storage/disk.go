package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Bytes returns what the directory takes on its disk, as du does: hard links count once,
// and what is mounted below does not. Containers may write there meanwhile: nothing leads
// out of the directory, and what changes under our eyes is not counted. An absent one takes nothing.
func Bytes(ctx context.Context, dir string) (int64, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	m := meter{links: map[uint64]bool{}}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case err == nil:
			return m.count(info)
		case path == ".":
			return err
		}
		return nil // it is not what it was a moment ago
	})
	return m.bytes, err
}

// meter adds up files.
type meter struct {
	bytes int64
	dev   uint64
	begun bool
	links map[uint64]bool // inodes with more than one name that were counted
}

func (m *meter) count(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if !m.begun {
		m.begun, m.dev = true, st.Dev
	}
	if st.Dev != m.dev {
		if info.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if !info.IsDir() && st.Nlink > 1 {
		if m.links[st.Ino] {
			return nil
		}
		m.links[st.Ino] = true
	}
	const sector = 512 // the unit of st_blocks, whatever the block size of the file system
	m.bytes += st.Blocks * sector
	return nil
}
