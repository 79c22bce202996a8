package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/image"
)

// imagesDirFlag and lockFlag are for all commands that get images.
func imagesDirFlag() cli.Flag {
	return newPathsFlag(categoryImages, "images-dir", "import from `DIR`", "ROOT/images")
}

func lockFlag() cli.Flag {
	return &cli.StringFlag{Name: "lock", Category: categoryImages, Usage: "use image digests in `FILE`, add those it lacks"}
}

func pullFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "pull", Category: categoryImages, Usage: "`WHEN` to pull: missing, always, never or newer",
	}
}

// imageFlags say where the images of pods come from.
func imageFlags() []cli.Flag {
	return append([]cli.Flag{
		imagesDirFlag(), pullFlag(), boolFlag(categoryImages, "pull nothing: every image must be present", "offline"), lockFlag(),
	}, registryFlags()...)
}

// retryFlags say how often something is tried.
func retryFlags() []cli.Flag {
	d := runonce.DefaultBackoff()
	return []cli.Flag{
		&cli.DurationFlag{Name: "retry-delay", Category: categoryRun, Value: d.Delay, Usage: "`DURATION` before the first retry"},
		&cli.Float64Flag{Name: "retry-factor", Category: categoryRun, Value: d.Factor, Usage: "multiply each further delay by `FACTOR`"},
		&cli.IntFlag{Name: "max-retries", Category: categoryRun, Value: d.Retries, Usage: "retry up to `N` times after errors"},
	}
}

func parallelPullsFlag() cli.Flag {
	return &cli.IntFlag{Name: "parallel-pulls", Category: categoryImages, Value: defaultPulls, Usage: "pull up to `N` images at once"}
}

// backoff reads retryFlags.
func backoff(c *cli.Context) runonce.Backoff {
	return runonce.Backoff{Delay: c.Duration("retry-delay"), Factor: c.Float64("retry-factor"), Retries: c.Int("max-retries"), Jitter: retryJitter}
}

// checkImageFlags refuses values of imageFlags that cannot be used.
func checkImageFlags(c *cli.Context) error {
	mode := image.Mode(c.String("pull"))
	switch mode {
	case image.ByPolicy, image.Missing, image.Always, image.Never, image.Newer:
	default:
		return usagef("--pull %q: must be missing, always, never or newer", mode)
	}
	if c.Bool("offline") && mode != image.ByPolicy && mode != image.Never {
		return usagef("--offline pulls nothing: it cannot be used with --pull=%s", mode)
	}
	if n := c.Int("parallel-pulls"); c.IsSet("parallel-pulls") && n < 1 {
		return usagef("--parallel-pulls %d: must be at least 1", n)
	}
	if err := credentialOptions(c).Check(); err != nil {
		return badInput(err)
	}
	return nil
}

// pullMode returns when images are pulled.
func pullMode(c *cli.Context) image.Mode {
	if c.Bool("offline") {
		return image.Never
	}
	return image.Mode(c.String("pull"))
}

// imagesDirs returns the directory in the root, if it has something, and those of --images-dir, whose
// images replace others of the same name. A command without that flag has none.
func imagesDirs(c *cli.Context, root string) []string {
	if c.Generic("images-dir") == nil {
		return nil
	}
	dirs := listOf(c, "images-dir")
	own := filepath.Join(root, "images")
	entries, err := os.ReadDir(own)
	visible := func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), ".") }
	if err == nil && slices.ContainsFunc(entries, visible) && !slices.Contains(dirs, own) {
		dirs = append([]string{own}, dirs...)
	}
	return dirs
}

// settleImages fixes the images of the pods by --lock, and refuses the pods whose images are not
// present if --offline says so.
func (p *program) settleImages(c *cli.Context, set *manifests.Set, s *session) error {
	err := p.lockImages(c, set, func(ctx context.Context, pod *v1.Pod, i podspec.Image) (string, error) {
		return s.pods.ImageDigest(ctx, pod, *i.Ref, i.Policy)
	})
	if err != nil || !c.Bool("offline") {
		return err
	}
	stored, err := s.engine.Images(c.Context)
	if err != nil {
		return unusable(fmt.Errorf("listing images: %w", err))
	}
	return refuse(c, set, absent(set.Pods, stored))
}

// refuse takes the pods with faults out of the set, if --skip-invalid leaves others.
func refuse(c *cli.Context, set *manifests.Set, faults []manifests.Fault) error {
	err := set.Refuse(faults)
	if err != nil && (!c.Bool("skip-invalid") || len(set.Pods) == 0) {
		return badInput(err)
	}
	return nil
}

// absent returns a fault for each image of the pods that the store does not have.
func absent(pods []*v1.Pod, stored []backend.Image) []manifests.Fault {
	var faults []manifests.Fault
	for _, pod := range pods {
		for _, i := range podspec.Images(pod) {
			ref, err := image.Normalize(*i.Ref)
			if err == nil && !isStored(stored, ref) {
				faults = append(faults, manifests.Fault{
					Pod: pod, Field: i.Field, Message: fmt.Sprintf("image %q is not present, and --offline pulls nothing", *i.Ref),
					Hint: `put an archive of it into --images-dir, or use "runonce images pull"`,
				})
			}
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
func (p *program) lockImages(c *cli.Context, set *manifests.Set, digest digestOf) error {
	path := c.String("lock")
	if path == "" {
		return nil
	}
	lock, err := manifests.ReadImageLock(path)
	if err != nil {
		return badInput(err)
	}
	if missing := unlocked(set.Pods, lock); len(missing) > 0 {
		end := p.display.Wait("looking for the digests of images")
		faults, err := addDigests(c, lock, missing, digest)
		end()
		if err == nil {
			err = refuse(c, set, faults)
		}
		if err != nil {
			return err
		}
		if err := lock.Write(path); err != nil {
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

// usesOf returns how the pods use images, by normalised reference.
func usesOf(pods []*v1.Pod) map[string][]use {
	all := map[string][]use{}
	for _, pod := range pods {
		for _, i := range podspec.Images(pod) {
			if ref, err := image.Normalize(*i.Ref); err == nil {
				all[ref] = append(all[ref], use{pod, i})
			}
		}
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
func addDigests(c *cli.Context, lock manifests.ImageLock, missing map[string][]use, digest digestOf) ([]manifests.Fault, error) {
	refs := slices.Sorted(maps.Keys(missing))
	found := make([]string, len(refs))
	errs := inParallel(refs, cmp.Or(c.Int("parallel-pulls"), defaultPulls), func(i int, ref string) error {
		return withRetries(c.Context, backoff(c), func() (err error) {
			found[i], err = digest(c.Context, missing[ref][0].pod, missing[ref][0].image)
			return err
		})
	})
	var faults []manifests.Fault
	for i, ref := range refs {
		switch err := errs[i]; {
		case err == nil:
			lock.Images[ref] = found[i]
		case context.Cause(c.Context) != nil:
			return nil, context.Cause(c.Context)
		case !failure.IsPermanent(err):
			return nil, unusable(fmt.Errorf("--lock: %w", err))
		default:
			for _, u := range missing[ref] {
				faults = append(faults, manifests.Fault{Pod: u.pod, Field: u.image.Field, Message: "its digest is not known: " + err.Error()})
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
func withUses(c *cli.Context, uses []use, f func(use) error) error {
	return withRetries(c.Context, backoff(c), func() (err error) {
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
