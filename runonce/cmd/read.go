package cmd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/runonce/runonce/manifests"
)

// reading is what is read of manifests, and what may be missing.
type reading struct {
	paths   []string
	options manifests.Options
	// skipInvalid leaves out what is invalid, if something is valid.
	skipInvalid bool
	// prunes says that directories may have no pods: then all pods that came from there are stopped.
	prunes bool
}

// read reads the manifests.
func (p *program) read(ctx context.Context, r reading) (*manifests.Set, error) {
	if err := needPaths(r.paths); err != nil {
		return nil, err
	}
	end := p.display.Wait("reading the manifests")
	set, err := manifests.ReadPaths(ctx, r.paths, r.options)
	end()
	p.printProblems(set.Warnings)
	p.faults = slices.Clip(set.Warnings)
	switch {
	case context.Cause(ctx) != nil:
		return nil, fmt.Errorf("reading the manifests: %w", context.Cause(ctx))
	case err != nil && (!r.skipInvalid || len(set.Pods) == 0):
		return nil, badInput(err)
	case len(set.Pods) == 0 && !(r.prunes && allDirectories(r.paths)):
		return nil, noPod(r.paths)
	}
	for _, in := range set.Invalid {
		p.faults = append(p.faults, in.Problems...)
	}
	return set, nil
}

// readImages reads manifests for their images, to which --lock gives the digests that they lack.
func (p *program) readImages(ctx context.Context, paths []string, input *inputFlags, fetch *fetchFlags) (*manifests.Set, error) {
	o, err := input.input(p.console)
	if err != nil {
		return nil, err
	}
	o.Places, o.RequireDigest = true, o.RequireDigest && fetch.lock == ""
	return p.read(ctx, reading{paths: paths, options: o})
}

// needPaths refuses no path at all.
func needPaths(paths []string) error {
	if len(paths) == 0 {
		return usagef("no PATH given: name a directory of pod manifests, a file, or - for standard input")
	}
	return nil
}

// allDirectories says whether all paths are directories. Empty standard input is more likely a mistake.
func allDirectories(paths []string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.IsDir()
	})
}

func noPod(paths []string) error {
	shown := make([]string, 0, len(paths))
	for _, p := range paths {
		shown = append(shown, manifests.Shown(p))
	}
	return usagef("no pod in %s", strings.Join(shown, ", "))
}
