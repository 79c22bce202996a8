package images

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

// noPlatform is in containerd's error for an image without a manifest for this platform.
const noPlatform = "no match for platform"

// withPlatforms makes containerd's error for an image that is not for this platform an engine.PlatformError.
// Others are returned as they are. target returns what the name of the image stands for.
func withPlatforms(ctx context.Context, store content.Provider, err error, target func() ocispec.Descriptor) error {
	if err == nil || !strings.Contains(err.Error(), noPlatform) {
		return err
	}
	other := &engine.PlatformError{Of: platformsOf(ctx, store, target()), Own: platforms.DefaultString()}
	return failure.WithMessage(other.Error(), errors.Join(other, err))
}

// maxIndex bounds what is read of an index, in bytes.
const maxIndex = 8 << 20

// platformsOf returns the platforms that an index of the store names. Attestations have none.
func platformsOf(ctx context.Context, store content.Provider, d ocispec.Descriptor) []string {
	r, err := store.ReaderAt(ctx, d)
	if err != nil {
		return nil
	}
	defer func() { _ = r.Close() }()
	var index ocispec.Index
	data := make([]byte, min(r.Size(), maxIndex))
	_, _ = r.ReadAt(data, 0)
	_ = json.Unmarshal(data, &index)
	var all []string
	for _, d := range index.Manifests {
		if p := d.Platform; p != nil && p.OS != "unknown" && images.IsManifestType(d.MediaType) {
			all = append(all, platforms.Format(*p))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// otherPlatform returns the platform that the configuration of an image names if it is not this one, empty
// for this one or none. Such an image may run all the same, emulated.
func otherPlatform(p ocispec.Platform) string {
	if p.OS == "" || p.Architecture == "" || platforms.Default().Match(p) {
		return ""
	}
	return platforms.Format(p)
}
