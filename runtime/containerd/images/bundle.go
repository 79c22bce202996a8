package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// Bundle collects images in a directory, without containerd, for an archive.
type Bundle struct {
	registries Registries
	store      content.Store
	platform   platforms.MatchComparer
	name       string                // of the platform
	other      bool                  // the platform may be another machine's
	report     func(engine.Transfer) // nil for none

	mu    sync.Mutex                    // guards the rest
	found map[string]ocispec.Descriptor // by normalised reference
}

// NewBundle returns an empty bundle for a platform, such as linux/arm64, "" for that of this
// machine. It keeps its content in the directory, and calls report as New does.
func NewBundle(dir, platform string, from Registries, report func(engine.Transfer)) (*Bundle, error) {
	spec := platforms.DefaultSpec()
	if platform != "" {
		var err error
		if spec, err = platforms.Parse(platform); err != nil {
			return nil, fmt.Errorf("platform %q: %w", platform, err)
		}
	}
	if spec.OS != "linux" {
		return nil, fmt.Errorf("platform %q: pods run on linux only", platform)
	}
	store, err := local.NewStore(dir)
	if err != nil {
		return nil, fmt.Errorf("collecting images in %s: %w", dir, err)
	}
	return &Bundle{
		registries: from, store: unlabelled{store}, platform: platforms.Only(spec), name: platforms.Format(spec), report: report,
		other: platform != "", found: map[string]ocispec.Descriptor{},
	}, nil
}

// Add adds the images of an archive.
func (b *Bundle) Add(ctx context.Context, a image.Archive) error {
	named, err := read(ctx, b.store, a, b.platform)
	if other := new(engine.PlatformError); errors.As(err, &other) {
		other.Own = b.name
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", a.Path, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, img := range named {
		b.found[img.Name] = img.Target
	}
	return nil
}

// Digest returns the digest of an image that was added or fetched, empty for none.
func (b *Bundle) Digest(ref string) string {
	target, ok := b.target(ref)
	if !ok {
		return ""
	}
	return target.Digest.String()
}

func (b *Bundle) target(ref string) (ocispec.Descriptor, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if target, ok := b.found[ref]; ok {
		return target, true
	}
	for _, name := range slices.Sorted(maps.Keys(b.found)) {
		if target := b.found[name]; image.Same(ref, name, target.Digest.String()) {
			return target, true
		}
	}
	return ocispec.Descriptor{}, false
}

// Fetch fetches an image with a normalized reference from its registry, unless it was added.
func (b *Bundle) Fetch(ctx context.Context, ref string, credentials []engine.Credential) (err error) {
	if _, ok := b.target(ref); ok {
		return nil
	}
	t := track(b.report, ref, engine.Pulling)
	defer func() { t.End(engine.Pulling, err) }()
	var target ocispec.Descriptor
	err = b.registries.Each(ctx, ref, credentials, func(a Access) error {
		return a.counted(t).Use(ctx, func(ctx context.Context, r remotes.Resolver) (err error) {
			if _, target, err = b.registries.verified(r).Resolve(ctx, ref); err != nil {
				return err
			}
			fetcher, err := r.Fetcher(ctx, ref)
			if err != nil {
				return err
			}
			return b.fetch(ctx, fetcher, target, t)
		})
	})
	if err != nil {
		return fmt.Errorf("pulling image %q: %w", ref, PullFailure(err))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found[ref] = ocispec.Descriptor{MediaType: target.MediaType, Digest: target.Digest, Size: target.Size}
	return nil
}

func (b *Bundle) fetch(ctx context.Context, fetcher remotes.Fetcher, target ocispec.Descriptor, t *Transfer) error {
	children := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(b.store), b.platform), b.platform, 1)
	var handler images.Handler = images.Handlers(remotes.FetchHandler(b.store, fetcher), bounded(children))
	if t != nil {
		handler = t.handler(b.store)(handler)
		defer every(ctx, func(ctx context.Context) {
			if active, err := b.store.ListStatuses(ctx, ""); err == nil {
				t.advance(active)
			}
		})()
	}
	return images.Dispatch(ctx, handler, semaphore.NewWeighted(downloads), target)
}

// Write writes an archive of images, which were added or fetched: their references by the names that
// they get in the archive. Equal images are equal bytes. An image that is not complete for the
// platform is an error.
func (b *Bundle) Write(ctx context.Context, w io.Writer, refs map[string]string) error {
	options := []archive.ExportOpt{archive.WithSkipDockerManifest(), archive.WithPlatform(b.platform), archive.WithSkipMissing(b.store)}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		ref := refs[name]
		target, ok := b.target(ref)
		if !ok {
			return fmt.Errorf("image %q is not in the bundle", ref)
		}
		if err := b.check(ctx, target); err != nil {
			return fmt.Errorf("image %q: %w", ref, err)
		}
		plain := ocispec.Descriptor{MediaType: target.MediaType, Digest: target.Digest, Size: target.Size}
		options = append(options, archive.WithManifest(plain, name))
	}
	if err := archive.Export(ctx, b.store, w, options...); err != nil {
		return fmt.Errorf("writing the bundle: %w", NativeError(err))
	}
	return nil
}

// check returns an error if the image is not complete for the platform.
func (b *Bundle) check(ctx context.Context, target ocispec.Descriptor) error {
	manifest, err := images.Manifest(ctx, b.store, target, b.platform)
	switch {
	case errdefs.IsNotFound(err):
		return failure.Permanentf("there is none for %s", b.name)
	case err != nil:
		return err
	}
	// An image without an index counts as one for every platform. On this machine, a run takes it as it is.
	if of, err := images.ConfigPlatform(ctx, b.store, manifest.Config); b.other && err == nil && of.Architecture != "" && !b.platform.Match(of) {
		return failure.Permanentf("there is none for %s, only for %s", b.name, platforms.Format(of))
	}
	return complete(ctx, b.store, target, b.platform)
}

// unlabelled is a content store without labels, which only a garbage collector needs.
type unlabelled struct{ content.Store }

// Update changes nothing.
func (unlabelled) Update(_ context.Context, i content.Info, _ ...string) (content.Info, error) {
	return i, nil
}
