package logs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// snapshot is a log with its rotated files as they were at one time.
type snapshot struct {
	files []*os.File // the oldest first
	sizes []int64
}

// takeSnapshot opens the log at path. The error wraps fs.ErrNotExist when there is none.
func takeSnapshot(path string) (*snapshot, error) {
	s := &snapshot{}
	// The current file first: if it is rotated meanwhile, it appears among the others, and
	// those after it are too new.
	current, err := os.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading log: %w", err)
	}
	paths, listErr := rotatedFiles(path)
	for _, p := range paths {
		f, err := os.Open(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the oldest is removed when a new one is made
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reading log: %w", err), s.close())
		}
		if current != nil && sameFile(f, current) {
			_ = f.Close()
			break
		}
		s.files = append(s.files, f)
	}
	if current != nil {
		s.files = append(s.files, current)
	}
	if listErr != nil || len(s.files) == 0 {
		return nil, errors.Join(fmt.Errorf("reading log %s: %w", path, cmp.Or(listErr, fs.ErrNotExist)), s.close())
	}
	for _, f := range s.files {
		info, err := f.Stat()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reading log: %w", err), s.close())
		}
		s.sizes = append(s.sizes, info.Size())
	}
	return s, nil
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// close closes the files.
func (s *snapshot) close() error {
	errs := make([]error, 0, len(s.files))
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.files = nil
	return errors.Join(errs...)
}

// suffix returns the whole entries in the last size bytes, and whether these are all.
func (s *snapshot) suffix(size int64) (raw []byte, all bool, err error) {
	var parts [][]byte
	left := size
	for i := len(s.files) - 1; i >= 0 && left > 0; i-- {
		part := make([]byte, min(left, s.sizes[i]))
		if _, err := s.files[i].ReadAt(part, s.sizes[i]-int64(len(part))); err != nil && !errors.Is(err, io.EOF) {
			return nil, false, fmt.Errorf("reading log: %w", err)
		}
		parts = append(parts, part)
		left -= int64(len(part))
	}
	slices.Reverse(parts)
	raw = bytes.Join(parts, nil)
	if left > 0 {
		return raw, true, nil
	}
	return raw[bytes.IndexByte(raw, '\n')+1:], false, nil
}
