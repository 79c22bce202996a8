package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestCheckDatabases: whatever is wrong with a database is an error, neither a panic nor a fault.
func TestCheckDatabases(t *testing.T) {
	t.Parallel()
	good := database(t)
	for name, tc := range map[string]struct {
		text []byte
		want string // of the error, empty for none
	}{
		"good":            {good, ""},
		"empty":           {nil, "it is empty"},
		"text":            {[]byte("text"), "invalid"},
		"one page":        {good[:4096], "too small"},
		"half":            {good[:len(good)/2], "it should have"},
		"zeros":           {joined(good[:8192], make([]byte, len(good)-8192)), "Page expected"},
		"another's pages": {joined(good[:8192], good[12288:], good[8192:12288]), "Page expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			writeDatabase(t, root, tc.text)
			err := checkDatabases(root)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "delete "+root)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// TestCheckDatabasesNew: a database may be missing before there is any data.
func TestCheckDatabasesNew(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := checkDatabases(root); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "io.containerd.snapshotter.v1.overlayfs", "snapshots", "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkDatabases(root); err == nil || !strings.Contains(err.Error(), "overlayfs/metadata.db is damaged: it is empty") {
		t.Error(err)
	}
}

// TestCheckDatabasesUnfinished: a database that a full disk has cut off while it was created is created again.
func TestCheckDatabasesUnfinished(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "io.containerd.snapshotter.v1.overlayfs")
	path := filepath.Join(dir, "metadata.db")
	if err := os.MkdirAll(filepath.Join(dir, "snapshots"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, database(t)[:4096], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkDatabases(root); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// database returns a database with nested buckets on many pages.
func database(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		top, err := tx.CreateBucket([]byte("v1"))
		for i := 0; i < 100 && err == nil; i++ {
			var b *bolt.Bucket
			if b, err = top.CreateBucket(fmt.Append(nil, i)); err == nil {
				err = errors.Join(b.Put([]byte("small"), []byte("x")), b.Put([]byte("large"), make([]byte, 3000)))
			}
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func writeDatabase(t *testing.T, root string, text []byte) {
	t.Helper()
	dir := filepath.Join(root, "io.containerd.metadata.v1.bolt")
	blobs := filepath.Join(root, "io.containerd.content.v1.content", "blobs", "sha256")
	err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(blobs, 0o700),
		os.WriteFile(filepath.Join(blobs, "a"), nil, 0o600), os.WriteFile(filepath.Join(dir, "meta.db"), text, 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

func joined(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
