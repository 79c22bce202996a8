package apiserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runonce/runonce/runtime/serve/objects"
)

const (
	// bookmarkPeriod is how often clients that want it are told the version that they have.
	bookmarkPeriod = time.Minute
	// watchTimeout is how long a watch takes at least, if the client does not say (--min-request-timeout of the API
	// server).
	watchTimeout = 30 * time.Minute
	// stallTimeout is how long a client may take to read an event.
	stallTimeout = 30 * time.Second
	// longest is the longest duration, in seconds.
	longest = int64(math.MaxInt64 / time.Second)
)

// watcher sends the changes of a collection to a client.
type watcher struct {
	*server
	query
	format
	frames  io.Writer // each write is a frame
	control *http.ResponseController
	version uint64 // up to which the client knows all
	begun   bool   // an event was sent
}

// watch answers with the changes of a collection, until the client goes or the time is over.
func (s *server) watch(w http.ResponseWriter, r *http.Request, q query) {
	f, err := s.codecs.acceptedStream(r)
	if err == nil && q.resource.compute != nil {
		err = apierrors.NewMethodNotSupported(q.resource.groupResource(), "watch")
	}
	if err == nil {
		err = s.await(r.Context(), q)
	}
	if err == nil && q.version != 0 && !wants(q.SendInitialEvents) {
		_, _, err = s.Mirror.Store().Since(q.version)
		err = s.versionError(err, q.version)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), q.duration())
	defer cancel()
	w.Header().Set("Content-Type", streamType(f.info.MediaType))
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	out := &watcher{
		server: s, query: q, format: f, version: q.version,
		frames: f.info.StreamSerializer.NewFrameWriter(w), control: http.NewResponseController(w),
	}
	defer func() { _ = out.control.SetWriteDeadline(time.Time{}) }() // the connection may have more requests
	if err := out.run(ctx); err != nil && ctx.Err() == nil {
		s.Log.DebugContext(ctx, "a client stopped reading", "path", r.URL.Path, "error", err)
	}
}

// duration returns how long a watch takes.
func (q *query) duration() time.Duration {
	if s := q.TimeoutSeconds; s != nil && *s != 0 { // 0 is none, as in the API server
		return time.Duration(min(*s, longest)) * time.Second
	}
	return watchTimeout + rand.N(watchTimeout)
}

// streamType returns the media type of a stream of events.
func streamType(of string) string {
	if of == runtime.ContentTypeJSON {
		return of
	}
	return of + streamParameter
}

func wants(b *bool) bool { return b != nil && *b }

func (w *watcher) run(ctx context.Context) error {
	w.limit()
	if err := w.flush(); err != nil { // the client learns that it is connected
		return err
	}
	if wants(w.SendInitialEvents) {
		if err := w.sendState(); err != nil {
			return err
		}
	}
	if w.version == 0 {
		w.version = w.Mirror.Store().Version()
	}
	bookmarks := time.NewTicker(bookmarkPeriod)
	defer bookmarks.Stop()
	for {
		more, err := w.sendChanges()
		if err != nil {
			return err
		}
		select {
		case <-more:
		case <-bookmarks.C:
			err = w.bookmark(nil)
		case <-ctx.Done():
			return w.bookmark(nil)
		}
		if err != nil {
			return err
		}
	}
}

// limit is called before something is written, and flush after it, when the client has got it. Nothing is limited between:
// over HTTP/2, a stream also ends if the time is over while there is nothing to write.
func (w *watcher) limit() {
	_ = w.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // an error is one of the write, too
}

func (w *watcher) flush() error {
	err := w.control.Flush()
	_ = w.control.SetWriteDeadline(time.Time{})
	return err
}

// sendState sends all objects that there are.
func (w *watcher) sendState() error {
	all, version, err := w.Mirror.Store().List(w.resource.Name, 0)
	if err != nil {
		return err
	}
	for _, o := range all {
		if !w.selects(o) {
			continue
		}
		if err := w.send(watch.Added, o); err != nil {
			return err
		}
	}
	w.version = version
	return errors.Join(w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"}), w.flush())
}

// sendChanges sends the changes that the client does not know. The channel is closed when there are more. A client that
// has fallen too far behind is told to list again.
func (w *watcher) sendChanges() (more <-chan struct{}, err error) {
	changes, more, err := w.Mirror.Store().Since(w.version)
	if err != nil {
		return nil, errors.Join(w.versionError(err, w.version), w.sendError(w.versionError(err, w.version)))
	}
	for _, c := range changes {
		if kind, o := w.eventOf(c); o != nil {
			if err := w.send(kind, o); err != nil {
				return nil, err
			}
		}
		w.version = c.Version
	}
	if len(changes) > 0 {
		err = w.flush()
	}
	return more, err
}

// eventOf returns what a change is to the client: an object that is selected no longer is gone for it.
func (w *watcher) eventOf(c objects.Change) (watch.EventType, objects.Object) {
	if c.Resource != w.resource.Name {
		return "", nil
	}
	switch before, now := w.selects(c.Before), w.selects(c.Now); {
	case before && now:
		return watch.Modified, c.Now
	case now:
		return watch.Added, c.Now
	case before:
		return watch.Deleted, atVersion(c.Before, c.Version)
	}
	return "", nil
}

// bookmark tells a client that wants it the version that it has, with annotations.
func (w *watcher) bookmark(annotations map[string]string) error {
	if !w.AllowWatchBookmarks {
		return nil
	}
	zero, err := w.codecs.scheme.New(w.resource.kind())
	o, ok := zero.(objects.Object)
	if err != nil || !ok {
		return err
	}
	o.SetResourceVersion(formatVersion(w.version))
	o.SetAnnotations(annotations)
	if err := w.send(watch.Bookmark, o); err != nil {
		return err
	}
	return w.flush()
}

func (w *watcher) send(kind watch.EventType, o objects.Object) error {
	out := w.represent(w.query, w.as, o, !w.begun)
	if kind != watch.Bookmark {
		w.begun = true
	}
	return w.sendEvent(kind, w.codecs.withKind(out))
}

// sendError tells the client why there are no more events.
func (w *watcher) sendError(err error) error {
	status := statusOf(err)
	return errors.Join(w.sendEvent(watch.Error, w.codecs.withKind(&status)), w.flush())
}

// sendEvent writes a frame with an event.
func (w *watcher) sendEvent(kind watch.EventType, o runtime.Object) error {
	var object, event bytes.Buffer
	if err := w.info.Serializer.Encode(o, &object); err != nil {
		return err
	}
	e := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object.Bytes()}}
	if err := w.info.StreamSerializer.Encode(e, &event); err != nil {
		return err
	}
	w.limit()
	_, err := w.frames.Write(event.Bytes())
	return err
}
