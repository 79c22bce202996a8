// Command floor starts containers on a containerd daemon with plain client calls: no
// sandbox and no log. It is the baseline of hack/bench. With -bridge, each container gets a
// network namespace of its own from CNI plugins, as nerdctl does it. With -alone, it runs only
// the OCI runtime, without containerd.
//
//	floor -address SOCKET -namespace NS [-bridge DIR] prepare ARCHIVE...
//	floor -address SOCKET -namespace NS -image REF [-n 30] [-parallel 4] [-bridge DIR] start
//	floor -address SOCKET -namespace NS [-parallel 4] [-bridge DIR] down
//	floor -alone DIR -runtime PATH -namespace NS [-n 30] [-parallel 4] start|down
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
)

type options struct {
	address   string
	namespace string
	image     string
	n         int
	parallel  int
	runtime   string // OCI runtime, by default the daemon's
	version   string // of the OCI runtime specification, by default the client's
	network   network
	alone     string // directory with the root file system of containers without containerd
}

func main() {
	var o options
	flag.StringVar(&o.address, "address", "/run/containerd/containerd.sock", "the daemon's socket")
	flag.StringVar(&o.namespace, "namespace", "floor", "containerd namespace")
	flag.StringVar(&o.image, "image", "", "image to start, present in the namespace")
	flag.IntVar(&o.n, "n", 1, "containers to start")
	flag.IntVar(&o.parallel, "parallel", 4, "containers to start or stop at a time")
	flag.StringVar(&o.runtime, "runtime", "", "path of another OCI runtime than runc")
	flag.StringVar(&o.version, "oci-version", "", "ociVersion for that runtime")
	flag.StringVar(&o.alone, "alone", "", "directory with a root file system in rootfs: run only the OCI runtime, without containerd")
	flag.StringVar(&o.network.dir, "bridge", "", "directory for the files of bridge networks; without it, containers use the host's network")
	flag.StringVar(&o.network.plugins, "cni-bin-dir", "/usr/lib/cni", "directory of the CNI plugins")
	flag.Parse()
	if err := run(context.Background(), o, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "floor: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, args []string) error {
	if len(args) == 0 {
		return errors.New("no command: import, start or down")
	}
	ctx = namespaces.WithNamespace(ctx, o.namespace)
	switch a := (alone{o.alone, o}); {
	case o.alone != "" && args[0] == "start":
		return a.start(ctx)
	case o.alone != "" && args[0] == "down":
		return a.down(ctx)
	}
	c, err := client.New(o.address, client.WithTimeout(5*time.Second))
	if err != nil {
		return fmt.Errorf("connecting to %q: %w", o.address, err)
	}
	switch args[0] {
	case "prepare":
		err = errors.Join(importImages(ctx, c, args[1:]), o.network.prepare(ctx))
	case "start":
		err = start(ctx, c, o)
	case "down":
		err = down(ctx, c, o)
	default:
		err = fmt.Errorf("unknown command %q", args[0])
	}
	return errors.Join(err, c.Close())
}

func importImages(ctx context.Context, c *client.Client, files []string) error {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		images, err := c.Import(ctx, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("importing %q: %w", name, err)
		}
		for _, img := range images {
			if err := client.NewImage(c, img).Unpack(ctx, ""); err != nil {
				return fmt.Errorf("unpacking %q: %w", img.Name, err)
			}
		}
	}
	return nil
}

func start(ctx context.Context, c *client.Client, o options) error {
	ctx, done, err := c.WithLease(ctx)
	if err != nil {
		return fmt.Errorf("creating a lease: %w", err)
	}
	img, err := c.GetImage(ctx, o.image)
	if err != nil {
		return fmt.Errorf("finding image %q: %w", o.image, err)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(o.parallel)
	for i := range o.n {
		group.Go(func() error { return startOne(groupCtx, c, o, img, fmt.Sprintf("floor-%03d", i)) })
	}
	return errors.Join(group.Wait(), done(ctx))
}

func startOne(ctx context.Context, c *client.Client, o options, img client.Image, id string) error {
	netns, err := o.network.add(ctx, id)
	if err != nil {
		return err
	}
	container, err := c.NewContainer(ctx, id,
		client.WithImage(img),
		client.WithNewSnapshot(id, img),
		client.WithRuntime("io.containerd.runc.v2", &runcoptions.Options{BinaryName: o.runtime}),
		client.WithNewSpec(oci.WithImageConfig(img), inNetwork(netns), withVersion(o.version)),
	)
	if err != nil {
		return fmt.Errorf("creating container %q: %w", id, err)
	}
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		return fmt.Errorf("creating task %q: %w", id, err)
	}
	if err := task.Start(ctx); err != nil {
		return fmt.Errorf("starting task %q: %w", id, err)
	}
	status, err := task.Status(ctx)
	if err != nil {
		return fmt.Errorf("getting the status of task %q: %w", id, err)
	}
	if status.Status != client.Running {
		return fmt.Errorf("task %q is %s", id, status.Status)
	}
	return nil
}

func down(ctx context.Context, c *client.Client, o options) error {
	all, err := c.Containers(ctx)
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(o.parallel)
	for _, container := range all {
		group.Go(func() error {
			if task, err := container.Task(ctx, nil); err == nil {
				if _, err := task.Delete(ctx, client.WithProcessKill); err != nil {
					return fmt.Errorf("deleting task %q: %w", container.ID(), err)
				}
			}
			return errors.Join(container.Delete(ctx, client.WithSnapshotCleanup), o.network.remove(ctx, container.ID()))
		})
	}
	return group.Wait()
}

// inNetwork puts the container into a network namespace, "" for the host's.
func inNetwork(path string) oci.SpecOpts {
	if path == "" {
		return oci.WithHostNamespace(specs.NetworkNamespace)
	}
	return oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: path})
}

// withVersion lowers the version of the specification, for an OCI runtime that refuses newer ones.
func withVersion(version string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		if version != "" {
			s.Version = version
		}
		return nil
	}
}
