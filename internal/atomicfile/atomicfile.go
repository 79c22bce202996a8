// Package atomicfile replaces files atomically, so that no reader sees a part of one, not even
// after a crash of the writer.
package atomicfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// tmp is the suffix of a file that is being written.
const tmp = ".tmp"

// maxName is how long a name may be, in bytes, so that there is room for its ending and for that of another one beside it.
const maxName = 240

// Name returns a name for a file of what has these names, which have no "_". Long ones are hashed.
func Name(of ...string) string {
	name := strings.Join(of, "_")
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:])
	}
	return name
}

// Write makes the data the content of the file. Writers of one file must exclude each
// other. A loss of power may leave the file empty.
func Write(path string, data []byte, mode fs.FileMode) error {
	return finish(path, os.WriteFile(path+tmp, data, mode))
}

// Overwrite makes the data the content of the file without replacing it, for one that is mounted elsewhere:
// a reader may see a part of the data.
func Overwrite(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, mode)
	if err == nil {
		_, err = f.WriteAt(data, 0)
		err = errors.Join(err, f.Truncate(int64(len(data))), f.Close())
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// WriteOrdered is Write for what a loss of power must not damage: the file then has the content that it had
// before, or the new one. It has the new one for certain after Sync of the file and of its directory.
func WriteOrdered(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path+tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err == nil {
		_, err = f.Write(data)
		if err == nil {
			err = order(f)
		}
		err = errors.Join(err, f.Close())
	}
	return finish(path, err)
}

// order puts the content of the file before all later changes of names. With the content written, the
// journals of ext4 and XFS do that without a flush of their own, which is what makes fsync slow.
func order(f *os.File) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	if unix.SyncFileRange(int(f.Fd()), 0, 0, all) == nil {
		return nil
	}
	return f.Sync() // some file systems cannot
}

// finish gives what was written its name, or removes it.
func finish(path string, err error) error {
	if err == nil {
		err = os.Rename(path+tmp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", path, err), remove(path+tmp))
	}
	return nil
}

// Sync returns once the file, or the names in the directory, are on disk. The name of a new directory
// then is, too.
func Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Unchanged reports whether it is the same file as before, with the same content and mode. before is nil if there was none.
func Unchanged(before, now fs.FileInfo) bool {
	return before != nil && os.SameFile(before, now) && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime()) && before.Mode() == now.Mode()
}
