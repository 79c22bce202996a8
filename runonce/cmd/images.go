package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/cmd/progress"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// Image is an image in the store.
type Image struct {
	Ref    string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // bytes, compressed
}

// imageList is the document that "images list" writes.
type imageList struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"` // Images
	Images     []Image `json:"images"`
	report.Failure
}

func (p *program) imagesCommand() *cli.Command {
	return &cli.Command{
		Name: "images", Usage: "list or import images",
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				return usagef("unknown command %q: must be list or import", "images "+name)
			}
			return usagef("images needs a command: list or import")
		},
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list images", Action: p.withLogger(p.listImages),
				Flags: slices.Concat([]cli.Flag{outputFlag("table", "json", "yaml")}, engineFlags()),
			},
			{
				Name: "import", Usage: "import image archives (tar, gz, zst) and OCI layouts", ArgsUsage: "PATH...",
				Action: p.withLogger(p.importImages), Flags: slices.Concat([]cli.Flag{quietFlag()}, engineFlags()),
			},
		},
	}
}

func (p *program) listImages(c *cli.Context) error {
	e, _, err := p.openEngine(c)
	if err != nil {
		return err
	}
	defer p.closeEngine(e)
	images, err := e.Images(c.Context)
	if err != nil {
		return unusable(fmt.Errorf("listing images: %w", err))
	}
	document := imageList{APIVersion: report.APIVersion, Kind: "Images", Images: slices.Concat([]Image{}, images)}
	return p.write(c, document, func(report.Style) error {
		rows := make([][]string, 0, len(images))
		for _, i := range images {
			rows = append(rows, []string{i.Ref, i.Digest, fmt.Sprintf("%.1f MB", float64(i.Size)/1e6)})
		}
		return report.Rows(p.io.Stdout, []string{"IMAGE", "DIGEST", "SIZE"}, rows)
	})
}

func (p *program) importImages(c *cli.Context) error {
	if c.Args().Len() == 0 {
		return usagef("no PATH given: name an archive, an OCI layout, or a directory of them")
	}
	e, _, err := p.openEngine(c)
	if err != nil {
		return err
	}
	defer p.closeEngine(e)
	for _, path := range c.Args().Slice() {
		names, err := e.Import(c.Context, path)
		for _, name := range names {
			if _, err := fmt.Fprintf(p.io.Stdout, "%s imported\n", name); err != nil {
				return fmt.Errorf("writing the result: %w", err)
			}
		}
		if err != nil {
			return importError(err)
		}
	}
	return nil
}

// importError returns the error for images that cannot be imported.
func importError(err error) error {
	if errors.Is(err, containerd.ErrUnusable) {
		return unusable(err)
	}
	return badInput(err)
}

// Images returns the images of the store.
func (e *machineEngine) Images(ctx context.Context) ([]Image, error) {
	records, err := e.Engine.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	images := make([]Image, 0, len(records))
	for _, r := range records {
		images = append(images, Image(r))
	}
	return images, nil
}

// Import imports an archive, an OCI layout, or all of those in a directory, except those whose
// images are in the store already.
func (e *machineEngine) Import(ctx context.Context, path string) ([]string, error) {
	archives, unknown, err := image.Archives(path)
	for _, u := range unknown {
		e.o.Log.Warn("ignored " + u)
	}
	if err == nil && len(archives) == 0 {
		err = fmt.Errorf("%s: no image archive or OCI layout in this directory", path)
	}
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, a := range archives {
		refs, err := e.importMissing(ctx, a)
		if err != nil {
			return nil, err
		}
		for ref := range refs {
			names[ref] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// importMissing imports an archive unless the store has its images, whose names it returns.
func (e *machineEngine) importMissing(ctx context.Context, a image.Archive) (refs map[string]string, err error) {
	report := e.o.Progress
	if report == nil {
		report = func(engine.Transfer) {}
	}
	last := engine.Transfer{Step: engine.Reading, Name: a.Path}
	report(last)
	defer func() {
		last.Ended, last.Err = true, err
		report(last)
	}()
	if refs, err = a.Refs(); err != nil || e.has(ctx, refs) {
		return refs, err
	}
	last.Step = engine.Importing
	report(last)
	var read atomic.Int64
	reported := time.Now()
	a.OnRead = func(done, total int64) {
		read.Store(done)
		if time.Since(reported) > progress.Refresh {
			reported = time.Now()
			report(engine.Transfer{Step: engine.Importing, Name: a.Path, Done: done, Total: total})
		}
	}
	err = e.importArchive(ctx, a)
	last.Done = read.Load()
	return refs, err
}

// has says whether the store has all these images, by reference and digest.
func (e *machineEngine) has(ctx context.Context, refs map[string]string) bool {
	for ref, digest := range refs {
		img, err := e.Engine.Image(ctx, ref)
		if err != nil || digest == "" || (img.Digest != digest && img.ID != digest) {
			return false
		}
	}
	return true
}

func (e *machineEngine) importArchive(ctx context.Context, a image.Archive) error {
	r, err := a.Open()
	if err != nil {
		return err
	}
	_, err = e.Engine.ImportArchive(ctx, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("importing %s: %w", a.Path, err)
	}
	return nil
}

// imagesToPull returns the images that a run of the plan would pull, sorted. An image that must
// not be pulled, or has an invalid name, fails its pod in the run, not the plan.
func imagesToPull(plan admit.Plan, stored []Image) []string {
	present := map[string]bool{}
	for _, i := range stored {
		present[i.Ref] = true
	}
	pull := map[string]bool{}
	add := func(name string, policy v1.PullPolicy) {
		ref, err := image.Normalize(name)
		if err != nil {
			return
		}
		if ok, err := image.Decide(image.Policy{Ref: name, Pull: policy, Present: present[ref]}); err == nil && ok {
			pull[ref] = true
		}
	}
	for _, d := range plan.Decisions {
		if d.Verdict != admit.Admitted || d.Running || d.Prune {
			continue
		}
		for _, c := range podspec.Containers(d.Pod) {
			add(c.Image, c.ImagePullPolicy)
		}
		for _, v := range d.Pod.Spec.Volumes {
			if v.Image != nil {
				add(v.Image.Reference, v.Image.PullPolicy)
			}
		}
	}
	return slices.Sorted(maps.Keys(pull))
}
