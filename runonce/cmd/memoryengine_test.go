package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/internal/testing/testimages"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/service"
	"github.com/runonce/runonce/runtime/service/rules"
	"github.com/runonce/runonce/runtime/volume"
)

// memory is a machine in memory: what one command leaves, the next one finds.
type memory struct {
	root      string
	engine    *enginetest.Engine
	sandboxes *enginetest.Sandboxes
	cgroups   *enginetest.Cgroups
	kernel    kernel
	// available returns how many percent of the disk are; nil for a half.
	available func() int64
	// importTakes is how long an import takes.
	importTakes time.Duration
}

func newMemory(t *testing.T) *memory {
	t.Helper()
	module, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	images, err := testimages.List(module)
	if err != nil {
		t.Fatal(err)
	}
	store := map[string]engine.Image{}
	for _, i := range images {
		var health *engine.Healthcheck
		if i.Healthcheck != nil {
			if err := json.Unmarshal(i.Healthcheck, &health); err != nil {
				t.Fatal(err)
			}
		}
		store[i.Ref] = engine.Image{
			Healthcheck: health,
			Ref:         i.Ref, ID: "sha256:" + i.Name, Digest: digestOf(i.Name), Size: 2_900_000, Entrypoint: i.Config.Entrypoint, Cmd: i.Config.Cmd, Env: i.Config.Env,
			User: i.Config.User, WorkingDir: i.Config.WorkingDir, StopSignal: i.Config.StopSignal,
		}
	}
	root := t.TempDir()
	used := podusage.Total{CPUSeconds: new(0.25), PeakMemoryBytes: new(int64(40 << 20)), ReadBytes: new(int64(3 << 10)), WrittenBytes: new(int64)}
	return &memory{
		root:      root,
		engine:    &enginetest.Engine{Program: (&enginetest.Box{}).Program, Store: store, Dir: filepath.Join(root, "containers"), Used: used},
		sandboxes: &enginetest.Sandboxes{Records: record.Open(root, filepath.Join(root, "state"))},
		cgroups:   &enginetest.Cgroups{Processors: 0.25, WorkingSet: 32 << 20, Total: used},
	}
}

// examine finds that everything works.
func (m *memory) examine(context.Context, backend.Options) (backend.Examination, error) {
	return backend.Examination{
		Cgroups: "v2", Engine: containerd.Versions{RuntimePath: "/usr/bin/crun", Runtime: "1.30", RuntimeReason: "it was asked for"}, Seccomp: true, Network: "a bridge, with nft",
	}, nil
}

// kernel has the rules of Services in memory.
type kernel struct {
	mu    sync.Mutex
	table *rules.Table // nil for none
}

func (k *kernel) Apply(_ context.Context, t rules.Table) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.table = &t
	return nil
}

func (k *kernel) Present(string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.table != nil, nil
}

func (k *kernel) Remove(context.Context, string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.table = nil
	return nil
}

// digestOf returns a digest for a name.
func digestOf(name string) string { return fmt.Sprintf("sha256:%064x", name) }

func (m *memory) open(_ context.Context, o backend.Options) (backend.Engine, error) {
	if o.Address == "dead" {
		return nil, errors.New("connecting to containerd: no such socket")
	}
	return &openedMemory{memory: m}, nil
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

// openedMemory is the memory engine as one process has opened it.
type openedMemory struct {
	*memory
	services *service.Keeper // set by Pods
}

func (m *openedMemory) Close() error {
	if m.services != nil {
		m.services.Flush()
	}
	return nil
}

func (m *openedMemory) Services() *service.Keeper { return m.services }

func (m *memory) Import(ctx context.Context, path, _ string) (backend.Imported, error) {
	select {
	case <-time.After(m.importTakes):
	case <-ctx.Done():
		return backend.Imported{}, fmt.Errorf("importing %s: %w", path, ctx.Err())
	}
	if _, err := os.Stat(path); err != nil {
		return backend.Imported{}, fmt.Errorf("looking for images: %w", err)
	}
	return backend.Imported{Refs: []string{"localhost/box:1"}}, nil
}

func (m *memory) Images(context.Context) ([]backend.Image, error) {
	var images []backend.Image
	stored := m.engine.Images()
	for _, ref := range slices.Sorted(maps.Keys(stored)) {
		images = append(images, backend.Image{Ref: ref, Digest: stored[ref].Digest, Size: stored[ref].Size, UsedBy: []string{}})
	}
	return images, nil
}

// ImageSpace is a disk of which a half is used, or as much as the test says.
func (m *memory) ImageSpace(context.Context) (image.Space, error) {
	if m.available != nil {
		return image.Space{Capacity: 100, Available: m.available()}, nil
	}
	return image.Space{Capacity: 100, Available: 50}, nil
}

func (m *memory) RemoveImages(_ context.Context, refs []string) (freed int64, err error) {
	for _, ref := range refs {
		freed += m.engine.RemoveImage(ref)
	}
	return freed, nil
}

func (m *openedMemory) Pods(ctx context.Context, n *v1.Node, o runtime.Options) (*runtime.Pods, error) {
	hosts := filepath.Join(m.root, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(m.root, "resolv.conf"), []byte("nameserver 192.0.2.53\n"), 0o600); err != nil {
		return nil, err
	}
	o.Engine, o.Sandboxes, o.Cgroups = m.engine, m.sandboxes, m.cgroups
	m.services = service.New(service.Options{
		Records: o.Records, Kernel: &m.kernel, Table: "services", HostIPs: []string{"192.0.2.1"}, Log: o.Log, Families: []v1.IPFamily{v1.IPv4Protocol},
		HostsFile: func(uid types.UID) string { return filepath.Join(o.Records.Dir(uid), runtime.HostsFile) },
		FreeRange: func(v1.IPFamily) (netip.Prefix, error) { return netip.MustParsePrefix("198.51.100.0/24"), nil },
		LookUp: func(_ context.Context, name string) ([]netip.Addr, error) {
			return nil, fmt.Errorf("lookup %s: no such host", name)
		},
	})
	o.Services = m.services
	o.Volumes = &volume.Manager{Root: m.root, Objects: o.Objects, ClaimsDir: filepath.Join(m.root, "claims"), Allocatable: n.Status.Allocatable, Mounter: enginetest.Mounts{}}
	o.Node = ocispec.Node{Name: n.Name, IPs: []string{"192.0.2.1"}, MemoryCapacity: 4 << 30, Allocatable: n.Status.Allocatable}
	o.Host = runtime.Host{Host: ocispec.Host{MinOOMScoreAdj: -1000}, HostsFile: hosts, ResolvConf: filepath.Join(m.root, "resolv.conf")}
	return runtime.New(ctx, o)
}

// Unsupported finds that the machine can run all pods.
func (*memory) Chosen() containerd.Choice {
	return containerd.Choice{Path: "/usr/bin/crun", Reason: "it works on this machine, and is faster than runc"}
}

func (*memory) Unsupported(context.Context, []*v1.Pod) map[types.UID]string { return nil }

// Check finds that nothing has to be installed.
func (*memory) Check([]*v1.Pod) error { return nil }

// Cleanup is an error when a pod has left something behind.
func (m *memory) Cleanup(ctx context.Context) error {
	cs, err := m.engine.Containers(ctx, "")
	if err != nil {
		return err
	}
	if n := len(cs) + len(m.sandboxes.Left()) + len(m.cgroups.Left()); n > 0 {
		return fmt.Errorf("%d things left", n)
	}
	return nil
}

// bareMachine has no sockets that listen.
func bareMachine() fstest.MapFS { return fstest.MapFS{} }

const configDir = "etc/runonce"

// configuredMachine has the configuration files of another file system.
type configuredMachine struct {
	fs.FS
	configs fs.FS
}

func (m configuredMachine) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, configDir) {
		return m.configs.Open(name)
	}
	return m.FS.Open(name)
}

// invocation is one command and what comes of it.
type invocation struct {
	code           int
	stdout, stderr string
}

// invoke runs a command on the machine in memory.
func invoke(t *testing.T, m *memory, args ...string) invocation {
	t.Helper()
	return invokeWith(t, cmd.IO{Open: m.open}, append(args, "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log"))...)
}

func invokeWith(t *testing.T, world cmd.IO, args ...string) invocation {
	t.Helper()
	var out, errs bytes.Buffer
	world.Stdout, world.Stderr = &out, &errs
	if world.Machine == nil {
		world.Machine = bareMachine()
	}
	if root := t.TempDir(); world.Environ == nil && !strings.Contains(root, ",") { // not the machine's own
		world.Environ = func() []string { return []string{"RUNONCE_ROOT=" + root} }
	}
	if world.Getenv == nil {
		world.Getenv = func(string) string { return "" }
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := cmd.Main(ctx, append([]string{"runonce"}, args...), world)
	return invocation{code, out.String(), errs.String()}
}

// manifest writes a pod with one container and returns the file's path.
func manifest(t *testing.T, name, policy, args string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".yaml")
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  restartPolicy: " + policy +
		"\n  containers:\n  - {name: main, image: \"localhost/box:1\", args: " + args + "}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func nodeFile() string { return filepath.Join(casesDir, "node.yaml") }
