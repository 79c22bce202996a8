package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// File is a file that is being written, and that takes its place when it is complete.
type File struct {
	*os.File
	path string
}

// Create begins to write a file. The caller ends with Commit or Abort. Several writers of one file
// do not disturb each other: the last one wins.
func Create(path string, mode fs.FileMode) (*File, error) {
	unique := fmt.Sprintf("%s.%d-%s%s", path, os.Getpid(), strconv.FormatInt(time.Now().UnixNano(), 36), tmp)
	f, err := os.OpenFile(unique, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return &File{f, path}, nil
}

// Commit puts the file in its place.
func (f *File) Commit() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", f.path, err), remove(f.Name()))
	}
	return nil
}

// Abort removes what was written. After Commit it does nothing.
func (f *File) Abort() error {
	if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return errors.Join(err, remove(f.Name()))
	}
	return remove(f.Name())
}
