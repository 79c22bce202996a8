package images

import (
	"context"
	"errors"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/platforms"

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
	err := a.Use(ctx, func(ctx context.Context, r remotes.Resolver) error {
		options := []client.RemoteOpt{
			client.WithResolver(r),
			client.WithPlatformMatcher(platforms.Default()),
			client.WithPullUnpack,
			client.WithPullSnapshotter(s.Snapshotter),
			client.WithMaxConcurrentDownloads(downloads),
			client.WithPullLabels(imageLabels(false)),
		}
		if t != nil {
			options = append(options, client.WithImageHandlerWrapper(t.handler(s.ContentStore())))
			defer t.watch(ctx, s)()
		}
		_, err := s.Client.Pull(ctx, a.ref, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.WithUsers(ctx, s, a.ref)
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
