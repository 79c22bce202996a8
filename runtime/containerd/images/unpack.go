package images

import (
	"context"
	"fmt"
	goruntime "runtime"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/unpack"
	"github.com/containerd/platforms"
	"golang.org/x/sync/semaphore"
)

// unpacks bounds how many layers of an image are unpacked at once: decompressing and writing them take a processor each.
// It is two at least, since one may wait until its layer has come.
// Where containerd cannot lay layers on each other afterwards, as before version 2.2, they are unpacked one after another.
func unpacks() *semaphore.Weighted { return semaphore.NewWeighted(int64(max(2, goruntime.NumCPU()))) }

// unpackLayers unpacks the layers of an image that is present.
func unpackLayers(ctx context.Context, s Conn, image images.Image) error {
	capabilities, err := s.GetSnapshotterCapabilities(ctx, s.Snapshotter)
	if err != nil {
		return fmt.Errorf("asking what the snapshotter can do: %w", err)
	}
	store := s.ContentStore()
	u, err := unpack.NewUnpacker(ctx, store, unpack.WithUnpackLimiter(unpacks()), unpack.WithUnpackPlatform(unpack.Platform{
		SnapshotterKey: s.Snapshotter, Snapshotter: s.Snapshots(), SnapshotterCapabilities: capabilities, Applier: s.DiffService(),
	}))
	if err != nil {
		return fmt.Errorf("preparing to unpack: %w", err)
	}
	platform := platforms.Default()
	parts := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(store), platform), platform, 1)
	if err := images.Dispatch(ctx, u.Unpack(parts), nil, image.Target); err != nil {
		return fmt.Errorf("reading its parts: %w", err)
	}
	_, err = u.Wait()
	return err
}
