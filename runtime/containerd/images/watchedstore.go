package images

import (
	"context"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// watchedStore is a content store that remembers its first error. What is wrong with an archive
// can thus be told from what is wrong with the engine.
type watchedStore struct {
	content.Store
	mu  sync.Mutex
	err error
}

// trouble returns the first error of the store. That content is missing, or is there already, is
// none.
func (s *watchedStore) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *watchedStore) note(err error) error {
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsAlreadyExists(err) || errdefs.IsInvalidArgument(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	return err
}

// Info returns what the store knows of a blob.
func (s *watchedStore) Info(ctx context.Context, d digest.Digest) (content.Info, error) {
	info, err := s.Store.Info(ctx, d)
	return info, s.note(err)
}

// Update changes the labels of a blob.
func (s *watchedStore) Update(ctx context.Context, i content.Info, fields ...string) (content.Info, error) {
	info, err := s.Store.Update(ctx, i, fields...)
	return info, s.note(err)
}

// ReaderAt opens a blob.
func (s *watchedStore) ReaderAt(ctx context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := s.Store.ReaderAt(ctx, d)
	return r, s.note(err)
}

// Writer opens a writer of a new blob.
func (s *watchedStore) Writer(ctx context.Context, o ...content.WriterOpt) (content.Writer, error) {
	w, err := s.Store.Writer(ctx, o...)
	if err != nil {
		return nil, s.note(err)
	}
	return &watchedWriter{w, s}, nil
}

type watchedWriter struct {
	content.Writer
	store *watchedStore
}

// Write writes to the blob.
func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	return n, w.store.note(err)
}

// Commit ends the blob.
func (w *watchedWriter) Commit(ctx context.Context, size int64, expected digest.Digest, o ...content.Opt) error {
	return w.store.note(w.Writer.Commit(ctx, size, expected, o...))
}
