package images

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

const (
	// pinnedLabel marks images that no garbage collection may remove, as in containerd's CRI
	// plugin (internal/cri/labels).
	pinnedLabel = "io.cri-containerd.pinned"
	pinnedValue = "pinned"
	// ownLabel marks images that were pulled or imported by this program: the namespace of a
	// daemon may have those of others.
	ownLabel = "runonce/image"
)

// imageLabels are those of an image of this program.
func imageLabels(pinned bool) map[string]string {
	all := map[string]string{ownLabel: "true"}
	if pinned {
		all[pinnedLabel] = pinnedValue
	}
	return all
}

// Record is one image of the local store.
type Record struct {
	Ref    string
	Digest string
	Size   int64 // bytes, compressed; 0 when the content is incomplete
	// Pinned images are kept although nothing uses them: they came with an archive.
	Pinned bool
	// Own images were pulled or imported by this program.
	Own bool
	// UsedBy are the pods and the containers without a pod that use the image, also those of
	// other programs and other roots.
	UsedBy []string
	// Since is when it was pulled or imported, and LastUse when a pod has used it last, zero if that is not known.
	Since, LastUse time.Time
}

// List returns the images of the store in order of their references.
func (c *Store) List(ctx context.Context, s Conn) ([]Record, error) {
	all, err := s.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	users, err := s.ContainerService().List(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]Record, 0, len(all))
	for _, img := range all {
		r := Record{
			Ref: img.Name, Digest: img.Target.Digest.String(), UsedBy: usersOf(img, users),
			Pinned: img.Labels[pinnedLabel] == pinnedValue, Own: img.Labels[ownLabel] != "",
			Since: img.UpdatedAt, LastUse: c.lastUse(img.Target.Digest),
		}
		if size, err := img.Size(ctx, s.ContentStore(), platforms.Default()); err == nil {
			r.Size = size
		}
		found = append(found, r)
	}
	return found, nil
}

// usersOf returns the names of the pods and containers that use an image, in order and each once.
func usersOf(img images.Image, all []containers.Container) []string {
	var users []string
	for _, c := range all {
		if c.Image == "" || !image.Same(c.Image, img.Name, img.Target.Digest.String()) {
			continue
		}
		name := c.ID
		if pod := c.Labels[engine.LabelPodName]; pod != "" {
			name = c.Labels[engine.LabelPodNamespace] + "/" + pod
		}
		users = append(users, name)
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// Dir returns the directory in which the daemon has the layers of images.
func Dir(ctx context.Context, s Conn) (string, error) {
	resp, err := s.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1,id=="+s.Snapshotter)
	if err != nil {
		return "", NativeError(err)
	}
	for _, p := range resp.Plugins {
		if dir := p.Exports["root"]; dir != "" {
			return dir, nil
		}
	}
	return "", fmt.Errorf("its snapshotter %s does not tell: %w", s.Snapshotter, errdefs.ErrNotFound)
}

// Pin marks images as such that are kept although nothing uses them.
func Pin(ctx context.Context, s Conn, refs []string) error {
	for _, ref := range refs {
		img, err := s.ImageService().Get(ctx, ref)
		if err != nil {
			return fmt.Errorf("pinning image %q: %w", ref, NativeError(err))
		}
		if img.Labels[pinnedLabel] == pinnedValue {
			continue
		}
		if err := save(ctx, s, images.Image{Name: ref, Target: img.Target, Labels: imageLabels(true)}); err != nil {
			return fmt.Errorf("pinning image %q: %w", ref, NativeError(err))
		}
	}
	return nil
}

// Remove removes images, and returns how many bytes their content has freed. One that is absent is
// no error.
func (c *Store) Remove(ctx context.Context, s Conn, refs []string) (freed int64, err error) {
	before, err := usage(ctx, s)
	if err != nil {
		return 0, err
	}
	for i, ref := range refs {
		var options []images.DeleteOpt
		if i == len(refs)-1 {
			options = append(options, images.SynchronousDelete()) // for all of them
		}
		img, known := s.ImageService().Get(ctx, ref)
		if err := IgnoreNotFound(s.ImageService().Delete(ctx, ref, options...)); err != nil {
			return 0, fmt.Errorf("removing image %q: %w", ref, err)
		}
		if known == nil {
			_ = os.Remove(c.usePath(img.Target.Digest))
		}
	}
	c.byRef.Clear() // a reference with a digest may have stood for one with a tag
	after, err := usage(ctx, s)
	return max(before-after, 0), err
}

// usage returns how many bytes the content and the layers of all images have.
func usage(ctx context.Context, s Conn) (total int64, err error) {
	err = s.ContentStore().Walk(ctx, func(i content.Info) error {
		total += i.Size
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("adding up the size of images: %w", NativeError(err))
	}
	err = s.Snapshots().Walk(ctx, func(ctx context.Context, i snapshots.Info) error {
		if i.Kind != snapshots.KindCommitted {
			return nil
		}
		u, err := s.Snapshots().Usage(ctx, i.Name)
		total += u.Size
		return IgnoreNotFound(err)
	})
	if err != nil {
		return 0, fmt.Errorf("adding up the size of unpacked images: %w", NativeError(err))
	}
	return total, nil
}
