package containerd

import (
	"context"
	"fmt"
	"io"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/imagestore"
	"github.com/runonce/runonce/runtime/containerd/link"
)

// ImageRecord is one image of the local store.
type ImageRecord = imagestore.Record

// ImportArchive adds the images of an OCI or docker archive, plain or compressed, and
// returns their references. An archive without a name for an image is an error. The archive
// is read again when the process that serves containerd goes, if r can seek.
func (e *Engine) ImportArchive(ctx context.Context, r io.Reader) ([]string, error) {
	var refs []string
	load := func(ctx context.Context, s *link.Session) (err error) {
		refs, err = imagestore.Import(ctx, s, r)
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

// readAgain is do for an op that reads r: where r cannot go back, op is called once.
func (e *Engine) readAgain(ctx context.Context, r io.Reader, op func(context.Context, *link.Session) error) error {
	file, ok := r.(io.Seeker)
	var start int64
	if ok {
		var err error
		start, err = file.Seek(0, io.SeekCurrent)
		ok = err == nil // a pipe's end is an *os.File, too
	}
	if !ok {
		s, err := e.session()
		if err != nil {
			return err
		}
		return op(namespaces.WithNamespace(ctx, e.o.Namespace), s)
	}
	return e.do(ctx, func(ctx context.Context, s *link.Session) error {
		if _, err := file.Seek(start, io.SeekStart); err != nil {
			return fmt.Errorf("going back to where it begins: %w", err)
		}
		return op(ctx, s)
	})
}

// ListImages returns the images of the local store in order of their references.
func (e *Engine) ListImages(ctx context.Context) ([]ImageRecord, error) {
	var found []ImageRecord
	err := e.do(ctx, func(ctx context.Context, s *link.Session) (err error) {
		found, err = imagestore.List(ctx, s)
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
	var img *imagestore.Image
	err = e.do(ctx, func(ctx context.Context, s *link.Session) error {
		if img, err = e.images.Get(ctx, s, name); err != nil {
			return err
		}
		return e.images.ReadUsers(ctx, s, img)
	})
	if err != nil {
		return engine.Image{}, fmt.Errorf("looking for image %q: %w", ref, err)
	}
	return img.Image, nil
}
