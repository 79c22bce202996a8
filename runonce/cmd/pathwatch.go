package cmd

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// changePause is how long nothing must change before a change is reported, and changePatience how long
	// that is waited for.
	changePause    = time.Second
	changePatience = 10 * time.Second
	// lookInterval is how often the files are looked at without an event: there are none for files
	// behind links, and on some network file systems. It is the kubelet's.
	lookInterval = 20 * time.Second
)

// watcher notices changes of files and directories: with inotify, and now and then by looking, for
// what inotify does not see.
type watcher struct {
	paths       []string
	recursive   bool
	fingerprint func() string
	hangups     <-chan struct{} // counts as a change
	interval    time.Duration
	last        string
	add         func(path string) error // has the events of a file or directory come
	inotify     func() (*fsnotify.Watcher, error)
	changed     chan struct{}
	hungUp      atomic.Bool // there was a hangup since somebody has set it to false
}

// newWatcher returns a watcher whose channel gets a value when the fingerprint of the paths has changed,
// and is quiet again; values coalesce.
func newWatcher(paths []string, recursive bool, fingerprint func() string) *watcher {
	return &watcher{
		paths: paths, recursive: recursive, fingerprint: fingerprint, last: fingerprint(), changed: make(chan struct{}, 1),
		interval: lookInterval, add: func(string) error { return nil }, inotify: fsnotify.NewWatcher,
	}
}

// start begins to watch, until ctx is done. An error says that changes are only noticed by looking.
func (w *watcher) start(ctx context.Context) error {
	inotify, err := w.inotify()
	if err != nil {
		go w.work(ctx, nil, nil)
		return fmt.Errorf("watching files: %w", err)
	}
	w.add = inotify.Add
	w.subscribe()
	context.AfterFunc(ctx, func() { _ = inotify.Close() })
	go w.work(ctx, inotify.Events, inotify.Errors)
	return nil
}

// subscribe asks for events of the paths, and of the directories that have them, in which they may be
// replaced. What does not exist has none.
func (w *watcher) subscribe() {
	for _, p := range w.paths {
		_ = w.add(filepath.Dir(p))
		_ = w.add(p)
		if w.recursive {
			_ = filepath.WalkDir(p, func(path string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					_ = w.add(path)
				}
				return nil
			})
		}
	}
}

// concerns says whether the event is one of the paths, or of what is below them.
func (w *watcher) concerns(e fsnotify.Event) bool {
	for _, p := range w.paths {
		if e.Name == p || strings.HasPrefix(e.Name, strings.TrimSuffix(p, "/")+"/") {
			return true
		}
	}
	return false
}

func (w *watcher) work(ctx context.Context, events <-chan fsnotify.Event, lost <-chan error) {
	var first time.Time // of the events that were not looked into
	timer := time.NewTimer(w.interval)
	for {
		select {
		case e, open := <-events:
			if !open || !w.concerns(e) {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			timer.Reset(max(0, min(changePause, time.Until(first.Add(changePatience)))))
		case _, open := <-lost: // events
			if !open {
				lost = nil
			}
			timer.Reset(changePause)
		case <-timer.C:
			first = time.Time{}
			w.look()
			timer.Reset(w.interval)
		case <-w.hangups:
			w.hungUp.Store(true)
			w.report()
		case <-ctx.Done():
			return
		}
	}
}

// look looks for a change, and reports it.
func (w *watcher) look() {
	now := w.fingerprint()
	if now == w.last {
		return
	}
	w.last = now
	w.subscribe()
	w.report()
}

func (w *watcher) report() {
	select {
	case w.changed <- struct{}{}:
	default: // one is pending already
	}
}
