package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/image"
)

// Import adds the images of an OCI or docker archive, plain or compressed, and returns their
// references. They are pinned. It adds none when one of them is not complete: blobs in archives are found by
// their digests, so a corrupt one is missing. An error that is not about the archive wraps
// errs.ErrUnusable.
func Import(ctx context.Context, s Conn, r io.Reader) (refs []string, err error) {
	ctx, release, err := holdLease(ctx, s.Client)
	if err != nil {
		return nil, errs.Unusable{Cause: err}
	}
	defer func() { err = release(err) }()
	plain, err := compression.DecompressStream(r)
	if err != nil {
		return nil, failure.Permanentf("decompressing it: %w", err)
	}
	defer func() { _ = plain.Close() }()
	store := &watchedStore{Store: s.ContentStore()}
	named, err := read(ctx, store, plain, platforms.Default())
	if trouble := store.trouble(); trouble != nil {
		return nil, errs.Unusable{Cause: errs.Native(trouble)}
	}
	if err != nil {
		return nil, &failure.Error{Final: true, Err: err}
	}
	for _, img := range named {
		img.Labels = imageLabels(true)
		if err := save(ctx, s, img); err != nil {
			return nil, errs.Unusable{Cause: fmt.Errorf("recording image %q: %w", img.Name, errs.Native(err))}
		}
		refs = append(refs, img.Name)
	}
	slices.Sort(refs)
	return slices.Compact(refs), nil
}

// read puts the content of an archive into the store, labelled for the garbage collector, and
// returns the images that have names.
func read(ctx context.Context, store content.Store, archived io.Reader, platform platforms.MatchComparer) ([]images.Image, error) {
	index, err := archive.ImportIndex(ctx, store, archived)
	if err != nil {
		return nil, err
	}
	var named []images.Image
	children := func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		all, err := images.Children(ctx, store, desc)
		if errdefs.IsNotFound(err) && desc.Digest != index.Digest {
			return nil, images.ErrSkipDesc // of another platform, or see complete
		}
		if desc.Digest == index.Digest {
			named = withNames(all)
		}
		return all, err
	}
	handler := images.SetChildrenLabels(store, images.FilterPlatforms(images.HandlerFunc(children), platform))
	err = images.WalkNotEmpty(ctx, handler, index)
	if errors.Is(err, images.ErrEmptyWalk) || err == nil && len(named) == 0 {
		return nil, errors.New("it holds no image with a name for the platform")
	}
	if err != nil {
		return nil, err
	}
	for _, img := range named {
		if err := complete(ctx, store, img.Target, platform); err != nil {
			return nil, fmt.Errorf("image %q: %w", img.Name, err)
		}
	}
	return named, nil
}

// withNames returns the images whose names in an archive are valid, under their full names.
func withNames(all []ocispec.Descriptor) []images.Image {
	var named []images.Image
	for _, target := range all {
		name := cmp.Or(target.Annotations[images.AnnotationImageName], target.Annotations[ocispec.AnnotationRefName])
		if full, err := image.Normalize(name); err == nil {
			named = append(named, images.Image{Name: full, Target: target})
		}
	}
	return named
}

// complete returns an error when a blob of the image for the platform is missing, or a layer
// is not the one that the configuration names. What a compressed layer holds is checked when it
// is unpacked. An image for other platforms only is complete.
func complete(ctx context.Context, store content.Store, target ocispec.Descriptor, platform platforms.MatchComparer) error {
	manifest, err := images.Manifest(ctx, store, target, platform)
	if err != nil && strings.Contains(err.Error(), noPlatform) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("its manifest is missing or corrupt: %w", err)
	}
	for _, blob := range append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...) {
		info, err := store.Info(ctx, blob.Digest)
		if err == nil && info.Size != blob.Size {
			err = fmt.Errorf("it has %d bytes, not %d", info.Size, blob.Size)
		}
		if err != nil {
			return fmt.Errorf("blob %s is missing or corrupt: %w", blob.Digest, err)
		}
	}
	config, err := readConfig(ctx, store, manifest.Config)
	if err != nil {
		return err
	}
	ids := config.RootFS.DiffIDs
	for i, layer := range manifest.Layers {
		plain := layer.MediaType == ocispec.MediaTypeImageLayer || layer.MediaType == images.MediaTypeDockerSchema2Layer
		if i >= len(ids) || plain && layer.Digest != ids[i] {
			return fmt.Errorf("layer %s is corrupt: it is not the one that the image's configuration names", layer.Digest)
		}
	}
	return nil
}

// save creates the image's record, or replaces that of its name.
func save(ctx context.Context, s Conn, img images.Image) error {
	fields := append(make([]string, 0, 1+len(img.Labels)), "target")
	for label := range img.Labels {
		fields = append(fields, "labels."+label)
	}
	_, err := s.ImageService().Update(ctx, img, fields...)
	if errdefs.IsNotFound(errs.Native(err)) {
		_, err = s.ImageService().Create(ctx, img)
	}
	return err
}
