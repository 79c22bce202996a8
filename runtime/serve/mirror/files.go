package mirror

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watcher tells of changes in directories. The zero value watches nothing.
type watcher struct {
	inotify *fsnotify.Watcher
	above   []string // directories that are only watched because something is to be made in them
}

// open begins to watch. The channel gets a value when anything changes in a directory; values coalesce.
func (w *watcher) open(ctx context.Context) (<-chan struct{}, error) {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w.inotify = inotify
	context.AfterFunc(ctx, func() { _ = inotify.Close() })
	changed := make(chan struct{}, 1)
	go func() {
		for events, errs := inotify.Events, inotify.Errors; ; {
			// An error is that of a queue that was full: something has changed then, too.
			ok := false
			select {
			case _, ok = <-events:
			case _, ok = <-errs:
			}
			if !ok {
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return changed, nil
}

// watch watches a directory, and all others with those in them, also what is watched already: it may be another one by
// now. It is called before they are read, so that nothing is missed that changes later. What is too much for the kernel is
// not watched.
func (w *watcher) watch(dir string, all ...string) {
	if w.inotify == nil {
		return
	}
	for _, dir := range w.above {
		_ = w.inotify.Remove(dir) // a busy one, perhaps
	}
	w.above = nil
	w.await(dir)
	for _, dir := range all {
		w.await(dir)
		entries, _ := os.ReadDir(dir) // none, as long as it does not exist
		for _, e := range entries {
			if e.IsDir() {
				_ = w.inotify.Add(filepath.Join(dir, e.Name()))
			}
		}
	}
}

// await watches a directory or, as long as it does not exist, the nearest one above it.
func (w *watcher) await(dir string) {
	for at, missing := dir, ""; ; {
		switch err := w.inotify.Add(at); {
		case errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at):
			at, missing = filepath.Dir(at), at
		case missing == "":
			return
		default:
			w.above = append(w.above, at)
			if _, err := os.Lstat(missing); err != nil {
				return
			}
			at, missing = dir, "" // it was made meanwhile
		}
	}
}
