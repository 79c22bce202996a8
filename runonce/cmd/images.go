package cmd

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/image"
)

// imageList is the document that "images list" writes.
type imageList struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"` // Images
	Images     []backend.Image `json:"images"`
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
	e, err := p.openEngine(c, true)
	if err != nil {
		return err
	}
	defer p.closeEngine(e)
	images, err := e.Images(c.Context)
	if err != nil {
		return unusable(fmt.Errorf("listing images: %w", err))
	}
	document := imageList{APIVersion: report.APIVersion, Kind: "Images", Images: slices.Concat([]backend.Image{}, images)}
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
	e, err := p.openEngine(c, true)
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

// imagesToPull returns the images that a run of the plan would pull, sorted. An image that must
// not be pulled, or has an invalid name, fails its pod in the run, not the plan.
func imagesToPull(plan admit.Plan, stored []backend.Image) []string {
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
