package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/containerd/containerd/v2/plugins"
	bolt "go.etcd.io/bbolt"
)

// checkDatabases returns an error if a database of containerd in the root directory is damaged, or was
// deleted without what it is about. Containerd would panic in a goroutine of its own, wait for a lock
// that a panic has left, or forget all pods and images.
func checkDatabases(root string) error {
	snapshotters, err := filepath.Glob(snapshotterDirs(root))
	if err != nil {
		return fmt.Errorf("looking for containerd's databases: %w", err)
	}
	files := map[string]string{metadataPath(root): filepath.Join(root, "io.containerd.content.v1.content", "blobs", "*", "*")}
	for _, dir := range snapshotters {
		files[filepath.Join(dir, "metadata.db")] = filepath.Join(dir, "snapshots", "*")
	}
	for path, data := range files {
		if err := checkDatabase(path, data); err != nil {
			return fmt.Errorf("containerd's database %s is damaged: %w; delete %s/io.containerd.*, then the pods start again, with images pulled or imported again",
				path, err, root)
		}
	}
	return nil
}

// metadataPath returns the path of the metadata store.
func metadataPath(root string) string { return filepath.Join(metadataDir(root), "meta.db") }

func metadataDir(root string) string {
	return filepath.Join(root, string(plugins.MetadataPlugin)+".bolt")
}

// snapshotterDirs returns a pattern of the directories of the snapshotters.
func snapshotterDirs(root string) string {
	return filepath.Join(root, string(plugins.SnapshotPlugin)+".*")
}

// newSize is the size of a new database: bolt writes its first four pages at once.
var newSize = int64(4 * os.Getpagesize())

// checkDatabase reads a database, which may be new as long as no file matches the pattern of its data. One that
// was not finished then, for example on a full disk, is removed: it has never had anything.
func checkDatabase(path, data string) (err error) {
	if info, err := os.Stat(path); err != nil || info.Size() < newSize {
		found, err := filepath.Glob(data)
		switch {
		case err == nil && len(found) == 0:
			return os.RemoveAll(path) // which need not exist
		case info == nil || info.Size() == 0:
			return errors.Join(errors.New("it is empty"), err)
		}
	}
	// Where the file was truncated or an offset is wrong, memory cannot be read.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	// To open it for writing would start a goroutine that reads it, and panics.
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: time.Minute})
	if err != nil {
		return err
	}
	err = db.View(func(tx *bolt.Tx) error {
		if info, err := os.Stat(path); err != nil || info.Size() < tx.Size() {
			return errors.Join(fmt.Errorf("it should have %d bytes", tx.Size()), err)
		}
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error { return readAll(b) })
	})
	return errors.Join(err, db.Close())
}

// readAll reads a bucket and those in it.
func readAll(b *bolt.Bucket) error {
	var before []byte
	var last byte
	return b.ForEach(func(key, value []byte) error {
		if before != nil && bytes.Compare(before, key) >= 0 {
			return fmt.Errorf("key %q comes after %q", key, before)
		}
		before = key
		if value == nil {
			if inner := b.Bucket(key); inner != nil {
				return readAll(inner)
			}
			return fmt.Errorf("key %q is not found", key)
		}
		if len(value) > 0 {
			last ^= value[0] ^ value[len(value)-1]
		}
		return nil
	})
}
