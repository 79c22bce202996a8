package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// Import adds the images of an archive, and returns their references. They are pinned. It adds none
// when one of them is not complete: blobs in archives are found by their digests, so a corrupt one
// is missing. An error that is not about the archive wraps errs.ErrUnusable.
func Import(ctx context.Context, s Conn, a image.Archive) (refs []string, err error) {
	ctx, release, err := holdLease(ctx, s.Client)
	if err != nil {
		return nil, failure.Unusable{Cause: err}
	}
	defer func() { err = release(err) }()
	store := &watchedStore{Store: s.ContentStore()}
	named, err := read(ctx, store, a, platforms.Default())
	if trouble := store.trouble(); trouble != nil {
		return nil, failure.Unusable{Cause: NativeError(trouble)}
	}
	if err != nil {
		return nil, &failure.Error{Final: true, Err: err}
	}
	for _, img := range named {
		img.Labels = imageLabels(true)
		if err := save(ctx, s, img); err != nil {
			return nil, failure.Unusable{Cause: fmt.Errorf("recording image %q: %w", img.Name, NativeError(err))}
		}
		refs = append(refs, img.Name)
	}
	slices.Sort(refs)
	return slices.Compact(refs), nil
}

// read puts the content of an archive into the store, labelled for the garbage collector, and
// returns the images that have names.
func read(ctx context.Context, store content.Store, a image.Archive, platform platforms.MatchComparer) ([]images.Image, error) {
	archived, err := a.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = archived.Close() }()
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
		if err == nil && desc.Digest == index.Digest {
			named, err = withNames(all, a)
		}
		return all, err
	}
	handler := images.SetChildrenLabels(store, images.FilterPlatforms(images.HandlerFunc(children), platform))
	err = images.WalkNotEmpty(ctx, handler, index)
	switch {
	case err == nil && len(named) == 0:
		return nil, errors.New("no image in it has a name")
	case errors.Is(err, images.ErrEmptyWalk):
		return nil, &engine.PlatformError{Of: platformsOf(ctx, store, index), Own: platforms.DefaultString()}
	case err != nil:
		return nil, err
	}
	for _, img := range named {
		if err := complete(ctx, store, img.Target, platform); err != nil {
			return nil, fmt.Errorf("image %q: %w", img.Name, err)
		}
	}
	return named, nil
}

// withNames returns the images that have names in the archive's index.
func withNames(all []ocispec.Descriptor, a image.Archive) (named []images.Image, err error) {
	for _, target := range all {
		name, err := a.ImageName(target.Annotations)
		if err != nil {
			return nil, err
		}
		if a.Name != "" && len(named) > 0 {
			if named[0].Target.Digest != target.Digest {
				return nil, fmt.Errorf("it has several images, so no single one can be named %s", a.Name)
			}
			continue
		}
		if name != "" {
			named = append(named, images.Image{Name: name, Target: target})
		}
	}
	return named, nil
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
	if err == nil {
		err = checkLayers(manifest, config.Image)
	}
	if err != nil {
		return err
	}
	ids := config.RootFS.DiffIDs
	for i, layer := range manifest.Layers {
		plain := layer.MediaType == ocispec.MediaTypeImageLayer || layer.MediaType == images.MediaTypeDockerSchema2Layer
		if plain && layer.Digest != ids[i] {
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
	if errdefs.IsNotFound(NativeError(err)) {
		_, err = s.ImageService().Create(ctx, img)
	}
	return err
}
