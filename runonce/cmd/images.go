package cmd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

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
		Name: "images", Usage: "list, pull, import, bundle and remove images",
		Action: func(c *cli.Context) error {
			const known = "must be list, pull, import, bundle, rm or prune"
			if name := c.Args().First(); name != "" {
				return usagef("unknown command %q: %s", "images "+name, known)
			}
			return usagef("images needs a command: %s", strings.TrimPrefix(known, "must be "))
		},
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list images and the pods that use them", Action: p.listImages,
				Flags: slices.Concat([]cli.Flag{outputFlag("table", "json", "yaml")}, engineFlags()),
			},
			p.imagesPullCommand(),
			{
				Name: "import", Usage: "import image archives (tar, gz, zst) and OCI layouts", ArgsUsage: "PATH...",
				Action: p.importImages, Flags: slices.Concat([]cli.Flag{quietFlag()}, engineFlags()),
			},
			p.imagesBundleCommand(),
			{
				Name: "rm", Usage: "remove images that no pod uses", ArgsUsage: "IMAGE...",
				Action: p.removeImages, Flags: slices.Concat([]cli.Flag{quietFlag()}, engineFlags()),
			},
			{
				Name: "prune", Usage: "remove all images that no pod uses, except those from archives", Action: p.pruneImages,
				Flags: slices.Concat([]cli.Flag{boolFlag("", "remove those from archives as well", "all"), quietFlag()}, engineFlags()),
			},
		},
	}
}

func (p *program) listImages(c *cli.Context) error {
	s, err := p.connect(c)
	if err != nil {
		return err
	}
	defer s.close()
	images, err := s.images(c.Context)
	if err != nil {
		return err
	}
	document := imageList{APIVersion: report.APIVersion, Kind: "Images", Images: append([]backend.Image{}, images...)}
	return p.write(c, document, func(report.Style) error {
		rows := make([][]string, 0, len(images))
		for _, i := range images {
			rows = append(rows, []string{i.Ref, i.Digest, megabytes(i.Size), strings.Join(i.UsedBy, ",")})
		}
		return report.Rows(p.io.Stdout, []string{"IMAGE", "DIGEST", "SIZE", "USED BY"}, rows)
	})
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

func (p *program) importImages(c *cli.Context) error {
	if c.Args().Len() == 0 {
		return usagef("no PATH given: name an archive, an OCI layout, or a directory of them")
	}
	o, err := p.engineOptions(c)
	if err != nil {
		return err
	}
	e, err := p.openEngine(c, o)
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

// imagesToPull returns the images that a run of the plan would pull, or ask the registry for, sorted. An image that must
// not be pulled, or has an invalid name, fails its pod in the run, not the plan.
func imagesToPull(plan admit.Plan, stored []backend.Image, mode image.Mode, supplied []string) []string {
	pull := map[string]bool{}
	for _, d := range plan.Decisions {
		if d.Verdict != admit.Admitted || d.Running || d.Prune {
			continue
		}
		for _, i := range podspec.Images(d.Pod) {
			ref, err := image.Normalize(*i.Ref)
			if err != nil {
				continue
			}
			action, err := image.Decide(image.Policy{
				Ref: *i.Ref, Pull: i.Policy, Mode: mode, Present: isStored(stored, ref), Local: slices.Contains(supplied, ref),
			})
			if err == nil && action != image.Use {
				pull[ref] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(pull))
}
