package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/runonce/runonce/internal/testing/podman"
)

// podman returns the variant with podman's own directories and settings, if podman is installed
// and its cgroup is free.
func (s setup) podman(ctx context.Context) (variant, bool) {
	p, err := podman.Find(filepath.Join(s.disk, "podman"), filepath.Join(s.state, "podman"))
	if errors.Is(err, podman.ErrNotInstalled) {
		return variant{}, false
	}
	if err == nil {
		err = command(ctx, p.Env, p.Args("load", "-i", s.archive)...)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: skipping podman: %v\n", err)
		return variant{}, false
	}
	return variant{
		name:      podmanName,
		optional:  true,
		env:       p.Env,
		start:     func(j job) []string { return p.Args("kube", "play", s.manifest(j)) },
		down:      p.Args("pod", "rm", "-fa", "-t", "0"),
		downLimit: s.removal,
		cgroups:   []string{podman.Cgroup, "conmon"},
	}, true
}
