package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/plugin"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/process"
)

// unsynced is a file in the root directory that exists while there may be layers of images that are not
// completely on disk, with the ID of the boot in which they were unpacked. Containerd's metadata
// is on disk at once, but the files of a layer are not: after a power failure they can be empty, and
// nothing would ever unpack them again. To write each layer to disk first, as containerd can
// (sync_fs), would delay the pods.
const unsynced = "unsynced"

// syncDelay is how long after a layer the next one is expected.
const syncDelay = 200 * time.Millisecond

// slowSync is how long the end of the program waits for the disk without saying so.
const slowSync = 5 * time.Second

// layers writes the layers of images to disk, while pods start.
type layers struct {
	root  string
	log   *slog.Logger
	timer *time.Timer // of the next sync

	syncing sync.Mutex // one sync at a time
	mu      sync.Mutex // for what follows
	marked  bool       // the file exists
	commits int
}

func newLayers(o Options) *layers {
	l := &layers{root: o.Root, log: o.Log}
	l.timer = time.AfterFunc(time.Hour, func() {
		if err := l.sync(); err != nil {
			l.log.Warn("could not write the layers of images to disk", "error", err)
		}
	})
	l.timer.Stop()
	return l
}

// expect is called before the metadata of a layer is written.
func (l *layers) expect() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.marked {
		if err := l.mark(); err != nil {
			return fmt.Errorf("marking the layers of images in %s: %w", l.root, err)
		}
		l.marked = true
	}
	l.commits++
	l.timer.Reset(syncDelay)
	return nil
}

// mark writes the file to disk. It is not renamed: only of a new file is the name on disk as well.
func (l *layers) mark() error {
	f, err := os.OpenFile(l.path(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(process.BootID())
	return errors.Join(err, f.Sync(), f.Close())
}

func (l *layers) path() string { return filepath.Join(l.root, unsynced) }

// sync writes all layers to disk. Those that are unpacked meanwhile wait for the next time.
func (l *layers) sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	marked, commits := l.marked, l.commits
	l.mu.Unlock()
	if !marked {
		return nil
	}
	dir, err := os.Open(l.root)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()); err != nil {
		return fmt.Errorf("writing the layers of images in %s to disk: %w", l.root, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.commits != commits {
		return nil
	}
	l.marked = false
	return os.Remove(l.path())
}

func (l *layers) close() error {
	l.timer.Stop()
	waiting := time.AfterFunc(slowSync, func() { l.log.Warn("still writing images to disk") })
	defer waiting.Stop()
	return l.sync()
}

// wrap returns a function that initializes a snapshotter whose layers are written to disk.
func (l *layers) wrap(init initFunc) initFunc {
	return func(ic *plugin.InitContext) (any, error) {
		instance, err := init(ic)
		if s, ok := instance.(snapshots.Snapshotter); ok {
			return durable{s, l}, err
		}
		return instance, err
	}
}

// durable is a snapshotter whose layers are written to disk.
type durable struct {
	snapshots.Snapshotter
	layers *layers
}

func (d durable) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	if err := d.layers.expect(); err != nil {
		return err
	}
	return d.Snapshotter.Commit(ctx, name, key, opts...)
}

// Cleanup removes the files of removed snapshots, if that is not done at once.
func (d durable) Cleanup(ctx context.Context) error {
	if c, ok := d.Snapshotter.(snapshots.Cleaner); ok {
		return c.Cleanup(ctx)
	}
	return nil
}

// recover removes all layers if the machine went down before they were on disk. Their images have
// what is needed to unpack them again. It is called before containerd starts, which may know of
// layers that a snapshotter has lost, and then refuses to remove those below.
func (l *layers) recover() error {
	boot, err := os.ReadFile(l.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && string(boot) == process.BootID() {
		l.marked = true
		l.timer.Reset(syncDelay)
		return nil
	}
	l.log.Warn("unpacking images again: the machine went down before they were completely on disk")
	if err == nil {
		err = forgetSnapshots(metadataPath(l.root))
	}
	dirs, _ := filepath.Glob(snapshotterDirs(l.root))
	for _, dir := range dirs {
		if err == nil {
			err = os.RemoveAll(dir)
		}
	}
	if err == nil {
		err = os.Remove(l.path())
	}
	if err != nil {
		return fmt.Errorf("removing images that are not completely on disk: %w", err)
	}
	return nil
}

// forgetSnapshots removes all snapshots from the metadata store. Package metadata of containerd
// documents its layout.
func forgetSnapshots(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Minute})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		all := tx.Bucket([]byte("v1"))
		if all == nil {
			return nil
		}
		return all.ForEachBucket(func(namespace []byte) error {
			err := all.Bucket(namespace).DeleteBucket([]byte("snapshots"))
			if errors.Is(err, berrors.ErrBucketNotFound) {
				return nil
			}
			return err
		})
	})
	return errors.Join(err, db.Close())
}
