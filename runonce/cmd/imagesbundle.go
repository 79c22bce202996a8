package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
	"github.com/runonce/runonce/runtime/image"
)

func (p *program) imagesBundleCommand() *cli.Command {
	return &cli.Command{
		Name: "bundle", Usage: "write the images of manifests to an archive for --images-dir", ArgsUsage: "PATH...",
		Action:      p.bundleImages,
		Description: "It needs no root and no containerd. While it works, TMPDIR has the images.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "output-file", Aliases: []string{"o"}, Usage: "write the archive to `FILE`, without compression if it ends in .tar"},
			&cli.StringFlag{Name: "platform", Category: categoryImages, Usage: "`PLATFORM`, as linux/arm64", DefaultText: "this machine's"},
			newPathsFlag(categoryImages, "images-dir", "take images from the archives in `DIR`", ""),
			lockFlag(), parallelPullsFlag(), quietFlag(),
		}, registryFlags(), retryFlags(), inputFlags(), logFlags()),
	}
}

// bundler collects the images of manifests.
type bundler struct {
	*images.Bundle
	from images.Registries
	set  *manifests.Set
}

func (p *program) bundleImages(c *cli.Context) (err error) {
	file := c.String("output-file")
	if info, err := os.Stat(file); file == "" || file == "-" || err == nil && info.IsDir() {
		return usagef("no FILE given: use -o bundle.tar.zst")
	}
	set, err := p.read(c)
	if err != nil {
		return err
	}
	server.RedirectLog(c.Context, p.log)
	dir, err := os.MkdirTemp("", "runonce-bundle-")
	if err != nil {
		return unusable(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var o containerd.Options
	p.registryOptions(c, &o)
	from := o.Registries()
	collected, err := images.NewBundle(dir, c.String("platform"), from, p.display.OnTransfer())
	if err != nil {
		return badInput(err)
	}
	b := bundler{collected, from, set}
	if err := b.addArchives(c); err != nil {
		return importError(fmt.Errorf("--images-dir: %w", err))
	}
	refs, err := b.collect(c, p)
	if err != nil {
		return err
	}
	end := p.display.Wait("writing " + file)
	size, err := b.write(c.Context, file, refs)
	end()
	if cause := context.Cause(c.Context); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		if _, err := fmt.Fprintf(p.io.Stdout, "%s %s\n", name, b.Digest(refs[name])); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	p.notice(fmt.Sprintf("%s has %s", file, megabytes(size)))
	return nil
}

// addArchives adds the images of --images-dir.
func (b bundler) addArchives(c *cli.Context) error {
	for _, dir := range listOf(c, "images-dir") {
		archives, err := backend.Archives(dir)
		if err != nil {
			return err
		}
		for _, a := range archives {
			if err := b.Add(c.Context, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// digest returns the digest of an image of a pod: of the one in an archive, else in the registry.
func (b bundler) digest(ctx context.Context, pod *v1.Pod, i podspec.Image) (string, error) {
	ref, err := image.Normalize(*i.Ref)
	if err != nil {
		return "", err
	}
	if digest := b.Digest(ref); digest != "" {
		return digest, nil
	}
	credentials, err := image.PodCredentials(b.set, pod, ref)
	if err != nil {
		return "", err
	}
	return b.from.Digest(ctx, ref, credentials)
}

// collect fetches the images that no archive has, and returns the references of all by the names of
// the manifests. With a lock the references have its digests.
func (b bundler) collect(c *cli.Context, p *program) (map[string]string, error) {
	names := b.refs()
	if err := p.lockImages(c, b.set, b.digest); err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for i, ref := range b.refs() {
		refs[names[i]] = ref
	}
	all := usesOf(b.set.Pods)
	errs := inParallel(slices.Sorted(maps.Keys(all)), c.Int("parallel-pulls"), func(_ int, ref string) error {
		return withUses(c, all[ref], func(u use) error {
			credentials, err := image.PodCredentials(b.set, u.pod, ref)
			if err != nil {
				return failure.Permanentf("%w", err)
			}
			return b.Fetch(c.Context, ref, credentials)
		})
	})
	return refs, cmp.Or(context.Cause(c.Context), errors.Join(errs...))
}

// refs returns the normalised references of all images, in the order of the manifests.
func (b bundler) refs() []string {
	var refs []string
	for _, pod := range b.set.Pods {
		for _, i := range podspec.Images(pod) {
			if ref, err := image.Normalize(*i.Ref); err == nil {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// write writes the archive and returns its size. The file appears when it is complete.
func (b bundler) write(ctx context.Context, path string, refs map[string]string) (size int64, err error) {
	f, err := atomicfile.Create(path, process.FileMode(0o644))
	if err != nil {
		return 0, usagef("--output-file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Abort()) }()
	var out io.WriteCloser = f
	if !strings.HasSuffix(path, ".tar") {
		// One goroutine makes the same bytes on every machine.
		if out, err = zstd.NewWriter(f, zstd.WithEncoderConcurrency(1)); err != nil {
			return 0, fmt.Errorf("writing %s: %w", path, err)
		}
	}
	if err := b.Write(ctx, out, refs); err != nil {
		return 0, err
	}
	if out != f {
		if err := out.Close(); err != nil {
			return 0, err
		}
	}
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", path, err)
	}
	return info.Size(), f.Commit()
}
