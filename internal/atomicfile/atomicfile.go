// Package atomicfile replaces files atomically, so that no reader sees a part of one, not even
// after a crash.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// tmp is the suffix of a file that is being written.
const tmp = ".tmp"

// Write makes the data the content of the file. Writers of one file must exclude each
// other.
func Write(path string, data []byte, mode fs.FileMode) error {
	err := os.WriteFile(path+tmp, data, mode)
	if err == nil {
		err = os.Rename(path+tmp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), remove(path+tmp))
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
