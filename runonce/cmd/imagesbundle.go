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

// imagesBundleCommand is "images bundle".
type imagesBundleCommand struct {
	*program
	fetchFlags
	inputFlags
	file, platform string
	dirs           list
}

func (p *program) imagesBundleCommand() *cli.Command {
	c := &imagesBundleCommand{program: p}
	return p.command(cli.Command{
		Name: "bundle", Usage: "write the images of manifests to an archive for --images-dir", ArgsUsage: "PATH...",
		Description: "It needs neither root nor containerd. While it runs, TMPDIR holds the images.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output-file", Aliases: []string{"o"}, Destination: &c.file, Usage: "write the archive to `FILE`, uncompressed if it ends in .tar"},
			&cli.StringFlag{Name: "platform", Destination: &c.platform, Category: categoryImages, Usage: "`PLATFORM`, such as linux/arm64", DefaultText: "this machine's"},
			pathsFlag(&c.dirs, categoryImages, "take images from the archives in `DIR`", "images-dir", ""), p.quietFlag(),
		},
	}, c, &c.fetchFlags, &c.inputFlags)
}

// bundler collects the images of manifests.
type bundler struct {
	*images.Bundle
	c    *imagesBundleCommand
	from images.Registries
	set  *manifests.Set
}

func (c *imagesBundleCommand) run(ctx context.Context, args []string) (err error) {
	if info, err := os.Stat(c.file); c.file == "" || c.file == "-" || err == nil && info.IsDir() {
		return usagef("no FILE given: use -o bundle.tar.zst")
	}
	set, err := c.readImages(ctx, args, &c.inputFlags, &c.fetchFlags)
	if err != nil {
		return err
	}
	server.RedirectLog(ctx, c.log)
	dir, err := os.MkdirTemp("", "runonce-bundle-")
	if err != nil {
		return unusable(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var registries containerd.Options
	c.setTo(&registries, c.io.Getenv)
	from := registries.Registries()
	collected, err := images.NewBundle(dir, c.platform, from, c.display.OnTransfer())
	if err != nil {
		return badInput(err)
	}
	b := bundler{collected, c, from, set}
	if err := b.addArchives(ctx); err != nil {
		return importError(fmt.Errorf("--images-dir: %w", err))
	}
	refs, err := b.collect(ctx)
	if err != nil {
		return err
	}
	end := c.display.Wait("writing " + c.file)
	size, err := b.write(ctx, c.file, refs)
	end()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		if _, err := fmt.Fprintf(c.io.Stdout, "%s %s\n", name, b.Digest(refs[name])); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	c.notice(fmt.Sprintf("%s has %s", c.file, megabytes(size)))
	return nil
}

// addArchives adds the images of --images-dir.
func (b bundler) addArchives(ctx context.Context) error {
	for _, dir := range b.c.dirs.values {
		archives, err := backend.Archives(dir)
		if err != nil {
			return err
		}
		for _, a := range archives {
			if err := b.Add(ctx, a); err != nil {
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
func (b bundler) collect(ctx context.Context) (map[string]string, error) {
	names := usesOf(b.set.Pods)
	if err := b.c.lockImages(ctx, b.set, &b.c.fetchFlags, false, b.digest); err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for name, uses := range names {
		ref, err := image.Normalize(*uses[0].image.Ref) // with its digest now
		if err != nil {
			return nil, badInput(err)
		}
		refs[name] = ref
	}
	all := usesOf(b.set.Pods)
	errs := inParallel(slices.Sorted(maps.Keys(all)), b.c.pulls, func(_ int, ref string) error {
		return withUses(ctx, b.c.backoff, all[ref], func(u use) error {
			credentials, err := image.PodCredentials(b.set, u.pod, ref)
			if err != nil {
				return failure.Permanentf("%w", err)
			}
			return b.Fetch(ctx, ref, credentials)
		})
	})
	return refs, cmp.Or(context.Cause(ctx), errors.Join(errs...))
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
