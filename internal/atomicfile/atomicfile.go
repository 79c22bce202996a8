// Package atomicfile replaces files in one step, so that no reader sees half of one, also
// after a crash.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// draft is what the name of a file ends in that is being written.
const draft = ".tmp"

// Write makes the data the content of the file. Writers of one file must exclude each
// other.
func Write(path string, data []byte, mode fs.FileMode) error {
	err := os.WriteFile(path+draft, data, mode)
	if err == nil {
		err = os.Rename(path+draft, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), remove(path+draft))
	}
	return nil
}

// Remove removes the file and what a Write that was cut off has left. Absent ones are no
// error.
func Remove(path string) error { return errors.Join(remove(path), remove(path+draft)) }

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
