package cmd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/image"
)

// imagePulls is the document that "images pull" writes.
type imagePulls struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"` // ImagePull
	ExitCode   int           `json:"exitCode"`
	Images     []pulledImage `json:"images"`
	report.Failure
}

// pulledImage is an image of the manifests, and what became of it.
type pulledImage struct {
	Ref     string `json:"name"`
	Digest  string `json:"digest,omitempty"`
	Size    int64  `json:"size,omitempty"` // bytes, compressed
	Outcome string `json:"outcome"`        // Pulled, Present or Failed
	Message string `json:"message,omitempty"`
}

// The outcomes of a pull.
const (
	outcomePulled  = "Pulled"
	outcomePresent = "Present"
	outcomeFailed  = "Failed"
)

// imagesPullCommand is "images pull".
type imagesPullCommand struct {
	*program
	imageFlags
	inputFlags
	engineFlags
	outputFlags
	list string
}

func (p *program) imagesPullCommand() *cli.Command {
	c := &imagesPullCommand{program: p, outputFlags: newOutputFlags("table", "json", "yaml")}
	return p.command(cli.Command{
		Name: "pull", Usage: "pull the images of manifests, so that a run finds them", ArgsUsage: "[PATH...]",
		Flags: []cli.Flag{
			textFlag(&c.list, categoryImages, "pull the images listed in `FILE`, - for stdin", "list", ""), p.quietFlag(),
		},
	}, c, &c.outputFlags, &c.imageFlags, &c.inputFlags, &c.engineFlags)
}

func (c *imagesPullCommand) run(ctx context.Context, args []string) error {
	set, listed, err := c.read(ctx, args)
	if err != nil {
		return err
	}
	t := c.machine(c.engine(c.console))
	t.images, t.pull = &c.imageFlags, image.Mode(c.pull)
	c.setTo(&t.options.Options, c.io.Getenv)
	defer t.close()
	t.want(append(set.Pods, listed))
	if err := t.open(ctx, &v1.Node{}, runtime.Options{Objects: set}); err != nil {
		return err
	}
	if err := t.settleImages(ctx, set); err != nil {
		return err
	}
	pods := append(set.Pods, listed)
	t.want(pods)
	all := usesOf(pods)
	refs := slices.Sorted(maps.Keys(all))
	results := make([]pulledImage, len(refs))
	_ = inParallel(refs, c.pulls, func(i int, ref string) error {
		results[i] = c.pullImage(ctx, t.pods, ref, all[ref])
		return nil
	})
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return c.report(results)
}

// read reads the manifests, if there are any, and the list, as a pod that has its images.
func (c *imagesPullCommand) read(ctx context.Context, paths []string) (set *manifests.Set, listed *v1.Pod, err error) {
	set, listed = &manifests.Set{}, &v1.Pod{}
	if c.list != "" {
		switch {
		case c.list == "-" && slices.Contains(paths, "-"):
			return nil, nil, usagef("standard input is the list or a manifest, not both")
		case c.lock != "" || c.requireDigest:
			return nil, nil, usagef("--lock and --require-digest are about manifests: give images in a list their digests there")
		}
		if listed, err = c.readList(); err != nil {
			return nil, nil, badInput(err)
		}
	}
	if c.list == "" || len(paths) > 0 {
		set, err = c.readImages(ctx, paths, &c.inputFlags, &c.fetchFlags)
	}
	return set, listed, err
}

// maxList bounds a list of images, in bytes.
const maxList = 10 << 20

// readList reads a list of images, one in a line, as k3s publishes them. Blank lines and those that begin with # are
// comments.
func (c *imagesPullCommand) readList() (*v1.Pod, error) {
	from, name := c.io.Stdin, "standard input"
	if c.list != "-" {
		f, err := os.Open(c.list)
		if err != nil {
			return nil, fmt.Errorf("--list: %w", err)
		}
		defer func() { _ = f.Close() }()
		from, name = f, c.list
	}
	if from == nil {
		from = strings.NewReader("")
	}
	text, err := io.ReadAll(io.LimitReader(from, maxList+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--list: reading %s: %w", name, err)
	case len(text) > maxList:
		return nil, fmt.Errorf("--list: %s is larger than %d MiB", name, maxList>>20)
	}
	return listedImages(name, string(text))
}

// listedImages returns a pod with the images of a list.
func listedImages(name, text string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		ref := strings.TrimSpace(line)
		if ref == "" || strings.HasPrefix(ref, "#") {
			continue
		}
		if _, err := image.Normalize(ref); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Image: ref, ImagePullPolicy: v1.PullIfNotPresent})
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, fmt.Errorf("--list: no image in %s", name)
	}
	return pod, nil
}

// pullImage gets an image as one of its uses says.
func (c *imagesPullCommand) pullImage(ctx context.Context, pods *runtime.Pods, ref string, uses []use) pulledImage {
	out := pulledImage{Ref: ref}
	err := withUses(ctx, c.backoff, uses, func(u use) error {
		img, pulled, err := pods.EnsureImage(ctx, u.pod, *u.image.Ref, u.image.Policy)
		if err != nil {
			return err
		}
		out.Digest, out.Size, out.Outcome = img.Digest, img.Size, outcomePresent
		if pulled {
			out.Outcome = outcomePulled
		}
		return nil
	})
	if err != nil {
		out.Outcome, out.Message = outcomeFailed, failure.WithAdvice(err).Error()
	}
	return out
}

// distinct returns the uses that differ in how the image is pulled.
func distinct(uses []use) []use {
	var all []use
	for _, u := range uses {
		same := func(other use) bool {
			return u.image.Policy == other.image.Policy && u.pod.Namespace == other.pod.Namespace &&
				slices.Equal(u.pod.Spec.ImagePullSecrets, other.pod.Spec.ImagePullSecrets)
		}
		if !slices.ContainsFunc(all, same) {
			all = append(all, u)
		}
	}
	return all
}

func (c *imagesPullCommand) fail(r report.Report) error {
	return c.writeDocument(c.output, imagePulls{APIVersion: report.APIVersion, Kind: "ImagePull", ExitCode: r.ExitCode, Images: []pulledImage{}, Failure: r.Failure})
}

func (c *imagesPullCommand) report(results []pulledImage) error {
	document := imagePulls{APIVersion: report.APIVersion, Kind: "ImagePull", Images: results}
	if slices.ContainsFunc(results, func(r pulledImage) bool { return r.Outcome == outcomeFailed }) {
		document.ExitCode = report.ExitFailed
	}
	err := c.write(c.output, document, func(report.Style) error {
		rows := make([][]string, 0, len(results))
		for _, r := range results {
			rows = append(rows, []string{r.Ref, r.Outcome, r.Digest})
			if r.Message != "" {
				c.println(fmt.Sprintf("%s: %s", r.Ref, r.Message))
			}
		}
		return report.Rows(c.io.Stdout, []string{"IMAGE", "OUTCOME", "DIGEST"}, rows)
	})
	if err != nil {
		return err
	}
	return exitWith(document.ExitCode, nil)
}
