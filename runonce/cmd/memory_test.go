package cmd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/hack/testimages"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/spec"
	"github.com/runonce/runonce/runtime/volume"
)

// memory is a machine in memory: what one command leaves, the next one finds.
type memory struct {
	root      string
	engine    *enginetest.Engine
	sandboxes *enginetest.Sandboxes
	cgroups   *enginetest.Cgroups
}

func newMemory(t *testing.T) *memory {
	t.Helper()
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	images, err := testimages.List(root)
	if err != nil {
		t.Fatal(err)
	}
	store := map[string]engine.Image{}
	for _, i := range images {
		store[i.Ref] = engine.Image{
			Ref: i.Ref, ID: "sha256:" + i.Name, Entrypoint: i.Config.Entrypoint, Cmd: i.Config.Cmd, Env: i.Config.Env,
			User: i.Config.User, WorkingDir: i.Config.WorkingDir, StopSignal: i.Config.StopSignal,
		}
	}
	return &memory{
		root:      t.TempDir(),
		engine:    &enginetest.Engine{Program: (&enginetest.Box{}).Program, Store: store},
		sandboxes: &enginetest.Sandboxes{},
		cgroups:   &enginetest.Cgroups{},
	}
}

func (m *memory) open(_ context.Context, p backend.Place) (backend.Backend, error) {
	if p.Address == "dead" {
		return nil, errors.New("connecting to containerd: no such socket")
	}
	return &memoryBackend{m, p}, nil
}

// kill ends the newest instance of a container from outside.
func (m *memory) kill(ctx context.Context, pod, container string, code int32) error {
	all, err := m.engine.Containers(ctx, "")
	if err != nil {
		return err
	}
	for _, c := range slices.Backward(all) {
		if c.Name == container && c.Labels[engine.LabelPodNamespace]+"/"+c.Labels[engine.LabelPodName] == pod {
			m.engine.Kill(c.ID, code)
			return nil
		}
	}
	return fmt.Errorf("no container %q of pod %q", container, pod)
}

type memoryBackend struct {
	*memory
	place backend.Place
}

func (b *memoryBackend) Close() error { return nil }

func (b *memoryBackend) Import(_ context.Context, path string) ([]string, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("looking for images: %w", err)
	}
	return []string{"localhost/box:1"}, nil
}

func (b *memoryBackend) Images(context.Context) ([]backend.Image, error) {
	return []backend.Image{{Name: "localhost/box:1", Digest: "sha256:box", Size: 2_900_000}}, nil
}

func (b *memoryBackend) Pods(ctx context.Context, o backend.PodsOptions) (backend.Pods, error) {
	hosts := filepath.Join(b.root, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o600); err != nil {
		return nil, err
	}
	p, err := runtime.New(ctx, runtime.Options{
		Engine: b.engine, Sandboxes: b.sandboxes, Cgroups: b.cgroups, Objects: o.Objects, Devices: o.Devices,
		Volumes: &volume.Manager{Root: b.root, Objects: o.Objects, ClaimsDir: filepath.Join(b.root, "claims"), Allocatable: o.Node.Status.Allocatable, Mounter: enginetest.Mounts{}},
		Records: o.Records, LogDir: b.place.LogDir, LocalImages: o.LocalImages, Log: b.place.Log, Trace: o.Trace,
		Node: spec.Node{Name: o.Node.Name, IPs: []string{"192.0.2.1"}, MemoryCapacity: 4 << 30, Allocatable: o.Node.Status.Allocatable},
		Host: runtime.Host{Host: host.Host{MinOOMScoreAdj: -1000}, HostsFile: hosts, ResolvConf: filepath.Join(b.root, "none")},
	})
	return memoryPods{p, b.memory}, err
}

type memoryPods struct {
	*runtime.Pods
	machine *memory
}

// Unable finds that nothing is lacking.
func (memoryPods) Unable(context.Context, []*v1.Pod) map[types.UID]string { return nil }

// Cleanup finds fault with whatever a pod has left behind.
func (p memoryPods) Cleanup(ctx context.Context) error {
	cs, err := p.machine.engine.Containers(ctx, "")
	if err != nil {
		return err
	}
	if n := len(cs) + len(p.machine.sandboxes.Left()) + len(p.machine.cgroups.Left()); n > 0 {
		return fmt.Errorf("%d things left", n)
	}
	return nil
}

// bareMachine has no sockets that listen.
func bareMachine() fstest.MapFS { return fstest.MapFS{} }
