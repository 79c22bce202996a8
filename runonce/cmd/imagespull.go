package cmd

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
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

func (p *program) imagesPullCommand() *cli.Command {
	return &cli.Command{
		Name: "pull", Usage: "pull the images of manifests, so that a run finds them", ArgsUsage: "PATH...",
		Action: p.pullImages,
		Flags: slices.Concat([]cli.Flag{
			imagesDirFlag(), pullFlag(), lockFlag(), parallelPullsFlag(), quietFlag(), outputFlag("table", "json", "yaml"),
		}, registryFlags(), retryFlags(), inputFlags(), engineFlags()),
	}
}

func (p *program) pullImages(c *cli.Context) error {
	set, err := p.read(c)
	if err != nil {
		return err
	}
	o, err := p.engineOptions(c)
	if err != nil {
		return err
	}
	s, err := p.open(c, o, &v1.Node{}, runtime.Options{Objects: set})
	if err != nil {
		return err
	}
	defer s.close()
	if err := p.settleImages(c, set, s); err != nil {
		return err
	}
	all := usesOf(set.Pods)
	refs := slices.Sorted(maps.Keys(all))
	results := make([]pulledImage, len(refs))
	_ = inParallel(refs, c.Int("parallel-pulls"), func(i int, ref string) error {
		results[i] = pullImage(c, s.pods, ref, all[ref])
		return nil
	})
	if err := context.Cause(c.Context); err != nil {
		return err
	}
	return p.reportPulls(c, results)
}

// pullImage gets an image as one of its uses says.
func pullImage(c *cli.Context, pods *runtime.Pods, ref string, uses []use) pulledImage {
	out := pulledImage{Ref: ref}
	err := withUses(c, uses, func(u use) error {
		img, pulled, err := pods.EnsureImage(c.Context, u.pod, *u.image.Ref, u.image.Policy)
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

func (p *program) reportPulls(c *cli.Context, results []pulledImage) error {
	document := imagePulls{APIVersion: report.APIVersion, Kind: "ImagePull", Images: results}
	if slices.ContainsFunc(results, func(r pulledImage) bool { return r.Outcome == outcomeFailed }) {
		document.ExitCode = report.ExitFailed
	}
	err := p.write(c, document, func(report.Style) error {
		rows := make([][]string, 0, len(results))
		for _, r := range results {
			rows = append(rows, []string{r.Ref, r.Outcome, r.Digest})
			if r.Message != "" {
				p.println(fmt.Sprintf("%s: %s", r.Ref, r.Message))
			}
		}
		return report.Rows(p.io.Stdout, []string{"IMAGE", "OUTCOME", "DIGEST"}, rows)
	})
	if err != nil {
		return err
	}
	return exitWith(document.ExitCode, nil)
}
