package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/image"
)

// Import adds the images of an OCI or docker archive, plain or compressed, and returns their
// references.
func Import(ctx context.Context, s Conn, r io.Reader) (refs []string, err error) {
	ctx, release, err := HoldLease(ctx, s.Client)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	plain, err := compression.DecompressStream(r)
	if err != nil {
		return nil, fmt.Errorf("decompressing it: %w", err)
	}
	defer func() { _ = plain.Close() }()
	imported, err := s.Import(ctx, plain,
		client.WithImageRefTranslator(fullName), client.WithImportPlatform(platforms.Default()), client.WithSkipMissing())
	if err != nil {
		return nil, err
	}
	if len(imported) == 0 {
		return nil, fmt.Errorf("it holds no image with a name for %s", platforms.DefaultString())
	}
	for _, img := range imported {
		ref, err := rename(ctx, s, img)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	slices.Sort(refs)
	return slices.Compact(refs), nil
}

// fullName returns the normalized form of a name in an archive, empty when it is not valid.
func fullName(name string) string {
	full, err := image.Normalize(name)
	if err != nil {
		return ""
	}
	return full
}

// rename gives an image that was imported under a short name its full one.
func rename(ctx context.Context, s Conn, img images.Image) (string, error) {
	name := fullName(img.Name)
	if name == "" || name == img.Name {
		return img.Name, nil
	}
	short := img.Name
	img.Name = name
	_, err := s.ImageService().Create(ctx, img)
	if errdefs.IsAlreadyExists(err) {
		_, err = s.ImageService().Update(ctx, img)
	}
	if err != nil {
		return "", fmt.Errorf("naming image %q: %w", name, err)
	}
	if err := errs.IgnoreNotFound(s.ImageService().Delete(ctx, short)); err != nil {
		return "", fmt.Errorf("removing the short name %q: %w", short, err)
	}
	return name, nil
}

// Record is one image of the local store.
type Record struct {
	Ref    string
	Digest string
	Size   int64 // bytes, compressed; 0 when the content is incomplete
}

// List returns the images of the store in order of their references.
func List(ctx context.Context, s Conn) ([]Record, error) {
	all, err := s.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]Record, 0, len(all))
	for _, img := range all {
		r := Record{Ref: img.Name, Digest: img.Target.Digest.String()}
		if size, err := img.Size(ctx, s.ContentStore(), platforms.Default()); err == nil {
			r.Size = size
		}
		found = append(found, r)
	}
	return found, nil
}
