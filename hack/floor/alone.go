package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sync/errgroup"
)

// alone runs an OCI runtime and nothing else. Its containers share the root file system in dir/rootfs, which has the
// program /pause.
type alone struct {
	dir string
	options
}

func (a alone) start(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(a.parallel)
	for i := range a.n {
		group.Go(func() error { return a.startOne(groupCtx, fmt.Sprintf("floor-%03d", i)) })
	}
	return group.Wait()
}

func (a alone) startOne(ctx context.Context, id string) error {
	spec, err := oci.GenerateSpec(ctx, nil, &containers.Container{ID: id}, oci.WithProcessArgs("/pause"),
		oci.WithRootFSPath(filepath.Join(a.dir, "rootfs")), inNetwork(""), withVersion(a.version))
	if err != nil {
		return fmt.Errorf("generating the specification of %q: %w", id, err)
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("writing the specification of %q: %w", id, err)
	}
	bundle := filepath.Join(a.dir, "bundles", id)
	err = errors.Join(os.MkdirAll(bundle, 0o711), os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o600))
	if err != nil {
		return fmt.Errorf("making the bundle of %q: %w", id, err)
	}
	if err := a.call(ctx, id, "create", "--bundle", bundle, id); err != nil {
		return err
	}
	return a.call(ctx, id, "start", id)
}

// down removes all containers.
func (a alone) down(ctx context.Context) error {
	bundles, err := filepath.Glob(filepath.Join(a.dir, "bundles", "*"))
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(a.parallel)
	for _, bundle := range bundles {
		id := filepath.Base(bundle)
		group.Go(func() error {
			return errors.Join(a.call(ctx, id, "delete", "--force", id), os.RemoveAll(bundle))
		})
	}
	return group.Wait()
}

// call runs the OCI runtime. The container inherits its standard streams, so that they must not be pipes.
func (a alone) call(ctx context.Context, id string, args ...string) error {
	log := filepath.Join(a.dir, "bundles", id, "log")
	cmd := exec.CommandContext(ctx, a.runtime, "--root", filepath.Join(a.dir, "state"), "--log", log)
	cmd.Args = append(cmd.Args, args...)
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("running %s %s: %w: %s", a.runtime, args[0], err, text)
	}
	return nil
}
