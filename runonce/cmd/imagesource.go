package cmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/image"
)

// settleImages refuses the pods that need an archive that cannot be used, fixes the images of the others by
// --lock, and refuses the pods whose images are not present if --offline says so.
func (t *nodeTarget) settleImages(ctx context.Context, set *manifests.Set) error {
	t.want(set.Pods)
	var offline, skipInvalid bool
	if t.planning != nil {
		offline, skipInvalid = t.planning.flags.offline, t.planning.flags.skipInvalid
	}
	if err := t.refuseBad(ctx, set, skipInvalid); err != nil {
		return err
	}
	err := t.lockImages(ctx, set, &t.images.fetchFlags, skipInvalid, func(ctx context.Context, pod *v1.Pod, i podspec.Image) (string, error) {
		return t.pods.ImageDigest(ctx, pod, *i.Ref, i.Policy)
	})
	if err != nil || !offline {
		return err
	}
	stored, err := t.storedImages(ctx)
	if err != nil {
		return err
	}
	return refuse(set, absent(set.Pods, stored), skipInvalid)
}

// storedImages returns the images of the store.
func (t *nodeTarget) storedImages(ctx context.Context) ([]backend.Image, error) {
	images, err := t.engine.Images(ctx)
	if err != nil {
		return nil, unusable(fmt.Errorf("listing images: %w", err))
	}
	return images, nil
}

// refuseBad refuses the pods that need an archive of --images-dir that cannot be used, and warns of the other
// such archives.
func (t *nodeTarget) refuseBad(ctx context.Context, set *manifests.Set, skipInvalid bool) error {
	if len(t.bad) == 0 {
		return nil
	}
	stored, err := t.storedImages(ctx)
	if err != nil {
		return err
	}
	var faults []manifests.Fault
	for _, bad := range t.bad {
		needed := needing(set.Pods, stored, bad, t.pull)
		if len(needed) == 0 {
			t.log.Warn("could not use an image archive that no pod needs", "error", bad.Err)
		}
		faults = append(faults, needed...)
	}
	return refuse(set, faults, skipInvalid)
}

// needing returns a fault for each image of the pods for which a bad archive is needed: it is known to have
// the image; or nobody knows what it has, and the image is not in the store and must not be pulled.
func needing(pods []*v1.Pod, stored []backend.Image, bad backend.BadArchive, mode image.Mode) []manifests.Fault {
	var faults []manifests.Fault
	for ref, u := range imagesOf(pods) {
		needed := slices.Contains(bad.Refs, ref)
		if bad.Refs == nil {
			_, err := image.Decide(image.Policy{Ref: *u.image.Ref, Pull: u.image.Policy, Mode: mode, Present: isStored(stored, ref)})
			needed = err != nil
		}
		if needed {
			faults = append(faults, u.fault("replace the archive, or remove it if it does not have this image",
				"image %q cannot be imported: %v", *u.image.Ref, bad.Err))
		}
	}
	return faults
}

// refuse takes the pods with faults out of the set, if they may be skipped and that leaves others.
func refuse(set *manifests.Set, faults []manifests.Fault, skipInvalid bool) error {
	err := set.Refuse(faults)
	if err != nil && (!skipInvalid || len(set.Pods) == 0) {
		return badInput(err)
	}
	return nil
}

// absent returns a fault for each image of the pods that the store does not have.
func absent(pods []*v1.Pod, stored []backend.Image) []manifests.Fault {
	var faults []manifests.Fault
	for ref, u := range imagesOf(pods) {
		if !isStored(stored, ref) {
			faults = append(faults, u.fault(`put an archive of it into --images-dir, or use "runonce images pull"`,
				"image %q is not present, and --offline pulls nothing", *u.image.Ref))
		}
	}
	return faults
}

// isStored reports whether the store has all of an image. Of an incomplete one it knows no size.
func isStored(stored []backend.Image, ref string) bool {
	return slices.ContainsFunc(stored, func(i backend.Image) bool { return i.Size > 0 && image.Same(ref, i.Ref, i.Digest) })
}

// digestOf returns the digest of an image of a pod.
type digestOf func(ctx context.Context, pod *v1.Pod, i podspec.Image) (string, error)

// lockImages gives the images of the pods the digests of --lock. It adds those that the lock lacks.
func (c *console) lockImages(ctx context.Context, set *manifests.Set, f *fetchFlags, skipInvalid bool, digest digestOf) error {
	if f.lock == "" {
		return nil
	}
	lock, err := manifests.ReadImageLock(f.lock)
	if err != nil {
		return badInput(err)
	}
	if missing := unlocked(set.Pods, lock); len(missing) > 0 {
		end := c.display.Wait("looking for the digests of images")
		faults, err := f.addDigests(ctx, lock, missing, digest)
		end()
		if err == nil {
			err = refuse(set, faults, skipInvalid)
		}
		if err != nil {
			return err
		}
		if err := lock.Write(f.lock); err != nil {
			return usagef("--lock: %w", err)
		}
	}
	for _, pod := range set.Pods {
		if err := set.SetImages(pod, func(ref string) string { return lockedRef(ref, lock) }); err != nil {
			return badInput(err)
		}
	}
	return nil
}

// use is an image as a pod uses it.
type use struct {
	pod   *v1.Pod
	image podspec.Image
}

// fault says what is wrong with the image.
func (u use) fault(hint, format string, args ...any) manifests.Fault {
	return manifests.Fault{Object: u.pod, Field: u.image.Field, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// imagesOf yields the images of the pods by normalised reference. Without those whose reference is invalid, in
// the order of the pods.
func imagesOf(pods []*v1.Pod) iter.Seq2[string, use] {
	return func(yield func(string, use) bool) {
		for _, pod := range pods {
			for _, i := range podspec.Images(pod) {
				if ref, err := image.Normalize(*i.Ref); err == nil && !yield(ref, use{pod, i}) {
					return
				}
			}
		}
	}
}

// usesOf returns how the pods use images, by normalised reference.
func usesOf(pods []*v1.Pod) map[string][]use {
	all := map[string][]use{}
	for ref, u := range imagesOf(pods) {
		all[ref] = append(all[ref], u)
	}
	return all
}

// unlocked returns the uses of images that are neither in the lock nor given by their digest.
func unlocked(pods []*v1.Pod, lock manifests.ImageLock) map[string][]use {
	missing := usesOf(pods)
	maps.DeleteFunc(missing, func(ref string, _ []use) bool { return lock.Images[ref] != "" || strings.Contains(ref, "@") })
	return missing
}

// lockedRef returns the reference with the digest of the lock.
func lockedRef(ref string, lock manifests.ImageLock) string {
	full, err := image.Normalize(ref)
	if err != nil || lock.Images[full] == "" {
		return ref
	}
	return full + "@" + lock.Images[full]
}

// addDigests adds the digests of images to the lock. It returns a fault for each use of an image that
// its registry does not have.
func (f *fetchFlags) addDigests(ctx context.Context, lock manifests.ImageLock, missing map[string][]use, digest digestOf) ([]manifests.Fault, error) {
	refs := slices.Sorted(maps.Keys(missing))
	found := make([]string, len(refs))
	errs := inParallel(refs, f.pulls, func(i int, ref string) error {
		return withRetries(ctx, f.backoff, func() (err error) {
			found[i], err = digest(ctx, missing[ref][0].pod, missing[ref][0].image)
			return err
		})
	})
	var faults []manifests.Fault
	for i, ref := range refs {
		switch err := errs[i]; {
		case err == nil:
			lock.Images[ref] = found[i]
		case context.Cause(ctx) != nil:
			return nil, context.Cause(ctx)
		case !failure.IsPermanent(err):
			return nil, unusable(fmt.Errorf("--lock: %w", err))
		default:
			for _, u := range missing[ref] {
				faults = append(faults, u.fault("", "its digest is unknown: %v", err))
			}
		}
	}
	return faults, nil
}

// inParallel calls f with the index of each element and with the element, at most n at once, -1 for all.
// It returns the error of each.
func inParallel[T any](all []T, n int, f func(i int, one T) error) []error {
	errs := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(n)
	for i, one := range all {
		group.Go(func() error {
			errs[i] = f(i, one)
			return nil
		})
	}
	_ = group.Wait() // it has none of the errors
	return errs
}

// withUses calls f for the uses of an image, which may have different credentials, until one succeeds.
// All of that is tried again as long as it could help.
func withUses(ctx context.Context, schedule runonce.Backoff, uses []use, f func(use) error) error {
	return withRetries(ctx, schedule, func() (err error) {
		for _, u := range distinct(uses) {
			if err = f(u); err == nil || !failure.IsPermanent(err) {
				return err
			}
		}
		return err
	})
}

// withRetries calls f until it succeeds or no retry is left that could help.
func withRetries(ctx context.Context, schedule runonce.Backoff, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err == nil || failure.IsPermanent(err) {
			return err
		}
		delay, more := schedule.Next(n, err)
		if !more {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}
