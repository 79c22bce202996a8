package cmd

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/exitcode"
	"github.com/runonce/runonce/runonce/report"
)

// imageList is the document that "images list" writes.
type imageList struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"` // Images
	Images     []backend.Image `json:"images"`
}

func (p *program) imagesCommand() *cli.Command {
	return &cli.Command{
		Name: "images", Usage: "list or import images",
		Action: func(*cli.Context) error { return exitcode.Usagef("images takes a command: list or import") },
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list the images that are there", Before: p.before, Action: p.listImages,
				Flags: slices.Concat([]cli.Flag{outputFlag("table, json or yaml")}, engineFlags()),
			},
			{
				Name: "import", Usage: "import archives (tar, gz, zst) and OCI layouts", ArgsUsage: "PATH...",
				Before: p.before, Action: p.importImages, Flags: engineFlags(),
			},
		},
	}
}

// store opens the engine for its images alone.
func (p *program) store(c *cli.Context) (backend.Backend, func(), error) {
	b, _, err := p.engine(c)
	if err != nil {
		return nil, nil, err
	}
	return b, func() {
		if err := b.Close(); err != nil {
			p.log.Warn("closing the engine", "error", err)
		}
	}, nil
}

func (p *program) listImages(c *cli.Context) error {
	format, err := formatOf(c, "table", "json", "yaml")
	if err != nil {
		return err
	}
	b, done, err := p.store(c)
	if err != nil {
		return err
	}
	defer done()
	images, err := b.Images(c.Context)
	if err != nil {
		return exitcode.Unusable(fmt.Errorf("listing images: %w", err))
	}
	document := imageList{APIVersion: report.APIVersion, Kind: "Images", Images: slices.Concat([]backend.Image{}, images)}
	return p.write(format, document, func(report.Style) error {
		rows := make([][]string, 0, len(images))
		for _, i := range images {
			rows = append(rows, []string{i.Name, i.Digest, fmt.Sprintf("%.1f MB", float64(i.Size)/1e6)})
		}
		return report.Rows(p.io.Stdout, []string{"IMAGE", "DIGEST", "SIZE"}, rows)
	})
}

func (p *program) importImages(c *cli.Context) error {
	if c.Args().Len() == 0 {
		return exitcode.Usagef("no PATH given: name an archive, an OCI layout, or a directory of them")
	}
	b, done, err := p.store(c)
	if err != nil {
		return err
	}
	defer done()
	for _, path := range c.Args().Slice() {
		names, err := b.Import(c.Context, path)
		for _, name := range names {
			if _, err := fmt.Fprintf(p.io.Stdout, "%s imported\n", name); err != nil {
				return fmt.Errorf("writing the result: %w", err)
			}
		}
		if err != nil {
			return exitcode.BadInput(err)
		}
	}
	return nil
}
