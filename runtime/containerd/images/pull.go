package images

import (
	"context"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/platforms"
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
	err = a.Use(ctx, func(ctx context.Context, r remotes.Resolver) error {
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

// WithUsers returns the image with a normalized reference, unpacked, with its passwd and group
// files.
func (c *Store) WithUsers(ctx context.Context, s Conn, ref string) (*Image, error) {
	img, err := c.Get(ctx, s, ref)
	if err != nil {
		return nil, err
	}
	return img, c.readUsers(ctx, s, img)
}
