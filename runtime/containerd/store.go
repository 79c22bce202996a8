package containerd

import (
	"context"
	"fmt"
	"io"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/images"
)

// ImageRecord is one image of the local store.
type ImageRecord = images.Record

// ImportArchive adds the images of an OCI or docker archive, plain or compressed, and returns
// their references. An image without a name is an error. The archive is read again when the
// process that serves containerd ends, if r can seek.
func (e *Engine) ImportArchive(ctx context.Context, r io.Reader) ([]string, error) {
	var refs []string
	load := func(ctx context.Context, s *session) (err error) {
		refs, err = images.Import(ctx, s.Conn, r)
		return err
	}
	if err := e.readAgain(ctx, r, load); err != nil {
		return nil, fmt.Errorf("importing an image archive: %w", errs.Native(err))
	}
	for _, ref := range refs {
		e.images.Forget(ref)
	}
	return refs, nil
}

// readAgain is do for an op that reads r: when r cannot seek, op is called once.
func (e *Engine) readAgain(ctx context.Context, r io.Reader, op func(context.Context, *session) error) error {
	file, ok := r.(io.Seeker)
	var start int64
	if ok {
		var err error
		start, err = file.Seek(0, io.SeekCurrent)
		ok = err == nil // a pipe is an *os.File, too
	}
	if !ok {
		s, err := e.currentSession()
		if err != nil {
			return err
		}
		return op(namespaces.WithNamespace(ctx, e.o.Namespace), s)
	}
	return e.do(ctx, func(ctx context.Context, s *session) error {
		if _, err := file.Seek(start, io.SeekStart); err != nil {
			return fmt.Errorf("going back to its start: %w", err)
		}
		return op(ctx, s)
	})
}

// ListImages returns the images of the local store in order of their references.
func (e *Engine) ListImages(ctx context.Context) ([]ImageRecord, error) {
	var found []ImageRecord
	err := e.do(ctx, func(ctx context.Context, s *session) (err error) {
		found, err = images.List(ctx, s.Conn)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	return found, nil
}

// Image returns the image in the local store that ref names, unpacked.
func (e *Engine) Image(ctx context.Context, ref string) (engine.Image, error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return engine.Image{}, err
	}
	var img *images.Image
	err = e.do(ctx, func(ctx context.Context, s *session) error {
		img, err = e.images.WithUsers(ctx, s.Conn, name)
		return err
	})
	if err != nil {
		return engine.Image{}, fmt.Errorf("looking for image %q: %w", ref, err)
	}
	return img.Image, nil
}
