package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
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
			p.imagesListCommand(), p.imagesPullCommand(), p.imagesImportCommand(), p.imagesBundleCommand(), p.imagesRemoveCommand(), p.imagesPruneCommand(),
		},
	}
}

// imagesListCommand is "images list".
type imagesListCommand struct {
	*program
	outputFlags
	engineFlags
}

func (p *program) imagesListCommand() *cli.Command {
	c := &imagesListCommand{program: p, outputFlags: newOutputFlags("table", "json", "yaml")}
	return p.command(cli.Command{Name: "list", Usage: "list images and the pods that use them"}, c, &c.outputFlags, &c.engineFlags)
}

func (c *imagesListCommand) run(ctx context.Context, _ []string) error {
	t := c.machine(c.engine(c.console))
	defer t.close()
	images, err := t.usedImages(ctx)
	if err != nil {
		return err
	}
	document := imageList{APIVersion: report.APIVersion, Kind: "Images", Images: append([]backend.Image{}, images...)}
	return c.write(c.output, document, func(report.Style) error {
		rows := make([][]string, 0, len(images))
		for _, i := range images {
			rows = append(rows, []string{i.Ref, i.Digest, megabytes(i.Size), strings.Join(i.UsedBy, ",")})
		}
		return report.Rows(c.io.Stdout, []string{"IMAGE", "DIGEST", "SIZE", "USED BY"}, rows)
	})
}

func (c *imagesListCommand) fail(r report.Report) error {
	return c.writeDocument(c.output, imageList{APIVersion: report.APIVersion, Kind: "Images", Images: []backend.Image{}, Failure: r.Failure})
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// imagesImportCommand is "images import".
type imagesImportCommand struct {
	*program
	engineFlags
	name string
}

func (p *program) imagesImportCommand() *cli.Command {
	c := &imagesImportCommand{program: p}
	return p.command(cli.Command{
		Name: "import", Usage: "import image archives (tar, gz, zst) and OCI layouts", ArgsUsage: "PATH...",
		Flags: []cli.Flag{
			textFlag(&c.name, "", "name the only image in the archive `REF`", "name", ""), p.quietFlag(),
		},
	}, c, &c.engineFlags)
}

func (c *imagesImportCommand) run(ctx context.Context, args []string) (err error) {
	if c.name != "" {
		if c.name, err = image.Normalize(c.name); err != nil {
			return usagef("--name: %w", err)
		}
	}
	switch {
	case len(args) == 0:
		return usagef("no PATH given: name an archive, an OCI layout, or a directory of them")
	case c.name != "" && len(args) > 1:
		return usagef("--name is for one PATH, not for %d", len(args))
	}
	e, err := c.openEngine(ctx, c.invocation.Name(), c.engine(c.console))
	if err != nil {
		return err
	}
	defer c.closeEngine(e)
	for _, path := range args {
		in, err := e.Import(ctx, path, c.name)
		for _, name := range in.Refs {
			if _, err := fmt.Fprintf(c.io.Stdout, "%s imported\n", name); err != nil {
				return fmt.Errorf("writing the result: %w", err)
			}
		}
		for _, line := range in.Unnamed {
			c.log.Warn(line)
		}
		if err := cmp.Or(err, in.Err()); err != nil {
			return importError(err)
		}
	}
	return nil
}

// imagesDropCommand is "images rm" or "images prune".
type imagesDropCommand struct {
	*program
	engineFlags
	choose func(images []backend.Image, args []string) ([]string, error)
}

func (p *program) imagesRemoveCommand() *cli.Command {
	c := &imagesDropCommand{program: p, choose: removable}
	return p.command(cli.Command{
		Name: "rm", Usage: "remove images that no pod uses", ArgsUsage: "IMAGE...", Flags: []cli.Flag{p.quietFlag()},
	}, c, &c.engineFlags)
}

// imagesPruneCommand is "images prune".
type imagesPruneCommand struct {
	imagesDropCommand
	all   bool
	limit image.Thresholds
}

func (p *program) imagesPruneCommand() *cli.Command {
	d := image.DefaultThresholds()
	c := &imagesPruneCommand{imagesDropCommand: imagesDropCommand{program: p}}
	c.choose = func(images []backend.Image, _ []string) ([]string, error) { return unused(images, c.all), nil }
	return p.command(cli.Command{
		Name: "prune", Usage: "remove all images that no pod uses, except those from archives",
		Description: "With --high or --low, it removes none unless the disk is too full, and only as many as necessary,\n" +
			"those first that were not used for the longest time.",
		Flags: []cli.Flag{
			boolFlag(&c.all, "", "remove those from archives as well", "all"), p.quietFlag(),
			numberFlag(&c.limit.High, "", "remove images if `PERCENT` of the disk or more are used", "high", d.High),
			numberFlag(&c.limit.Low, "", "and only until `PERCENT` are used", "low", d.Low),
		},
	}, c, &c.engineFlags)
}

func (c *imagesPruneCommand) run(ctx context.Context, args []string) error {
	limited := slices.ContainsFunc(c.invocation.Given(), func(f cli.Flag) bool {
		return slices.Contains([]string{"high", "low"}, cmdline.FlagName(f))
	})
	if !limited {
		return c.imagesDropCommand.run(ctx, args)
	}
	if err := c.limit.Validate(); err != nil {
		return usagef("--high and --low: %w", err)
	}
	t := c.machine(c.engine(c.console))
	defer t.close()
	return t.pruneImages(ctx, c.limit, c.all)
}

func (c *imagesDropCommand) run(ctx context.Context, args []string) error {
	if c.invocation.Command.ArgsUsage != "" && len(args) == 0 {
		return usagef("no IMAGE given: name images as in %q", "runonce images list")
	}
	t := c.machine(c.engine(c.console))
	defer t.close()
	return t.dropImages(ctx, func(images []backend.Image) ([]string, error) { return c.choose(images, args) })
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
		if !d.Runs() || d.Running {
			continue
		}
		for ref, u := range imagesOf([]*v1.Pod{d.Pod}) {
			action, err := image.Decide(image.Policy{
				Ref: *u.image.Ref, Pull: u.image.Policy, Mode: mode, Present: isStored(stored, ref), Local: slices.Contains(supplied, ref),
			})
			if err == nil && action != image.Use {
				pull[ref] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(pull))
}
