package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/image"
)

// usedImages returns the images of the store with the pods that use them: those of earlier runs, and
// those that other runs are about to start.
func (t *nodeTarget) usedImages(ctx context.Context) ([]backend.Image, error) {
	if err := t.connect(ctx); err != nil {
		return nil, err
	}
	// The reservations come first: pods that start meanwhile are among the others.
	pods, err := t.owner.Reserved()
	if err != nil {
		return nil, unusable(err)
	}
	started, err := t.list(ctx, nil)
	if err != nil {
		return nil, err
	}
	images, err := t.storedImages(ctx)
	if err != nil {
		return nil, err
	}
	addUsers(images, slices.Concat(pods, started))
	return images, nil
}

// addUsers adds the pods that use the images.
func addUsers(images []backend.Image, pods []*v1.Pod) {
	for n := range images {
		i := &images[n]
		for _, pod := range pods {
			if usesImage(pod, *i) {
				i.UsedBy = append(i.UsedBy, podspec.FullName(pod))
			}
		}
		slices.Sort(i.UsedBy)
		i.UsedBy = slices.Compact(i.UsedBy)
	}
}

func usesImage(pod *v1.Pod, i backend.Image) bool {
	for ref := range imagesOf([]*v1.Pod{pod}) {
		if image.Same(ref, i.Ref, i.Digest) {
			return true
		}
	}
	return false
}

// unused returns the images that nothing uses, without those of other programs, and only with all
// those from archives.
func unused(images []backend.Image, all bool) []string {
	var refs []string
	for _, i := range images {
		if len(i.UsedBy) == 0 && !i.Foreign && (all || !i.Pinned) {
			refs = append(refs, i.Ref)
		}
	}
	return refs
}

// removable returns the images that the arguments name, or why one cannot be removed.
func removable(images []backend.Image, args []string) ([]string, error) {
	var refs []string
	for _, arg := range args {
		ref, err := image.Normalize(arg)
		if err != nil {
			return nil, usagef("%w", err)
		}
		n := slices.IndexFunc(images, func(i backend.Image) bool { return image.Same(ref, i.Ref, i.Digest) })
		switch {
		case n < 0:
			return nil, usagef("image %q is not present", arg)
		case len(images[n].UsedBy) > 0:
			return nil, usagef("image %q is used by %s", arg, strings.Join(images[n].UsedBy, ", "))
		case images[n].Foreign:
			return nil, usagef("image %q was neither pulled nor imported by runonce", arg)
		}
		refs = append(refs, images[n].Ref)
	}
	slices.Sort(refs)
	return slices.Compact(refs), nil
}

// dropImages removes the images that choose returns, while no other run plans to use them, and prints
// them, and what that has freed.
func (t *nodeTarget) dropImages(ctx context.Context, choose func([]backend.Image) ([]string, error)) error {
	if err := t.connectToChange(ctx, "no image can be removed"); err != nil {
		return err
	}
	if err := t.enter(ctx, t.owner); err != nil {
		return err
	}
	images, err := t.usedImages(ctx)
	if err != nil {
		return err
	}
	refs, err := choose(images)
	if err != nil {
		return err
	}
	var freed int64
	if len(refs) > 0 {
		end := t.display.Wait("removing images")
		freed, err = t.engine.RemoveImages(ctx, refs)
		end()
		if err != nil {
			return unusable(err)
		}
	}
	var out strings.Builder
	for _, ref := range refs {
		fmt.Fprintf(&out, "%s removed\n", ref)
	}
	fmt.Fprintf(&out, "%s freed\n", megabytes(freed))
	if _, err := fmt.Fprint(t.io.Stdout, out.String()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// dropImagesOf removes the images that only the pods used, which have been stopped.
func (t *nodeTarget) dropImagesOf(ctx context.Context, pods []*v1.Pod) error {
	return t.dropImages(ctx, func(images []backend.Image) ([]string, error) {
		images = slices.DeleteFunc(images, func(i backend.Image) bool {
			return !slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return usesImage(pod, i) })
		})
		return unused(images, false), nil
	})
}
