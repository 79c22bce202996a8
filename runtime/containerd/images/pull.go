package images

import (
	"context"
	"errors"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/failure"
)

// downloads is how many layers of an image are fetched at once (the kubelet's containerd: 3).
const downloads = 3

// Pull fetches the image that the access is for and unpacks it. t, if not nil, reports how far
// that is.
func (c *Store) Pull(ctx context.Context, s Conn, a Access, t *Transfer) (img *Image, err error) {
	ctx, release, err := c.holdPull(ctx, s.Client, a.ref)
	if err != nil {
		return nil, err
	}
	defer func() { err = release(err) }()
	before, known := s.ImageService().Get(ctx, a.ref)
	img, err = c.pull(ctx, s, a, t)
	if failure.IsPermanent(err) {
		err = errors.Join(err, restore(ctx, s, a.ref, before, known))
	}
	return img, err
}

func (c *Store) pull(ctx context.Context, s Conn, a Access, t *Transfer) (*Image, error) {
	err := a.counted(t).Use(ctx, func(ctx context.Context, r remotes.Resolver) error {
		options := []client.RemoteOpt{
			client.WithResolver(a.registries.verified(r)),
			client.WithPlatformMatcher(platforms.Default()),
			client.WithPullUnpack,
			client.WithUnpackOpts([]client.UnpackOpt{client.WithUnpackLimiter(unpacks())}),
			client.WithPullSnapshotter(s.Snapshotter),
			client.WithMaxConcurrentDownloads(downloads),
			client.WithPullLabels(imageLabels(false)),
			client.WithImageHandlerWrapper(func(next images.Handler) images.Handler { return bounded(t.handler(s.ContentStore())(next)) }),
		}
		defer t.watch(ctx, s)()
		_, err := s.Client.Pull(ctx, a.ref, options...)
		return withPlatforms(ctx, s.ContentStore(), err, func() ocispec.Descriptor {
			_, target, _ := r.Resolve(ctx, a.ref)
			return target
		})
	})
	if err != nil {
		return nil, err
	}
	return c.WithUsers(ctx, s, a.ref)
}

// bounded refuses manifests and configurations that are too large to be read into memory, before they are
// fetched. The first manifest or index is refused by its answer.
func bounded(next images.Handler) images.Handler {
	return images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		children, err := next.Handle(ctx, desc)
		for _, d := range children {
			if err == nil && d.Size > maxAnswer && isMetadata(d.MediaType) {
				err = tooLarge(d)
			}
		}
		return children, err
	})
}

func isMetadata(mediaType string) bool {
	return images.IsManifestType(mediaType) || images.IsIndexType(mediaType) || images.IsConfigType(mediaType)
}

func tooLarge(d ocispec.Descriptor) error {
	return failure.Permanentf("its part %s (%s) has %d bytes, more than %d MiB: only layers may be so large", d.Digest, d.MediaType, d.Size, maxAnswer>>20)
}

// restore makes a name that a pull has given to something that is not an image stand again for what it
// stood for before: otherwise that would count as present. known is the error of looking for that.
func restore(ctx context.Context, s Conn, ref string, before images.Image, known error) error {
	now, err := s.ImageService().Get(ctx, ref)
	switch {
	case err != nil || known == nil && now.Target.Digest == before.Target.Digest:
		return IgnoreNotFound(err)
	case known == nil:
		return save(ctx, s, before)
	}
	return IgnoreNotFound(s.ImageService().Delete(ctx, ref))
}

// WithUsers returns the image with a normalized reference, unpacked, with its passwd and group
// files.
func (c *Store) WithUsers(ctx context.Context, s Conn, ref string) (*Image, error) {
	img, err := c.Get(ctx, s, ref)
	if err != nil {
		return nil, err
	}
	return img, c.readUsers(ctx, s, img)
}
