package containerd_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/testimages"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/ocispec"
)

const boxRef = "localhost/box:1"

// boxArchive is the box image, built once.
var boxArchive = sync.OnceValues(func() ([]byte, error) {
	root, err := testimages.Root()
	if err != nil {
		return nil, err
	}
	program, err := testimages.Program(context.Background(), root, "box")
	if err != nil {
		return nil, err
	}
	all, err := testimages.List(root)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, img := range all {
		if img.Name == "box" {
			err = ociimage.Build(&b, img.Contents(program))
		}
	}
	return b.Bytes(), err
})

// testDirs are the directories of a test's engine. They can be opened again.
type testDirs struct {
	dir     string
	address string
	logs    string
	runtime string // the OCI runtime, empty for the default
}

func newTestDirs(t testing.TB) testDirs {
	t.Helper()
	roottest.Require(t)
	p := testDirs{dir: roottest.Dir(t, "rt-"), logs: t.TempDir()}
	t.Cleanup(func() { removeAll(t, p) })
	return p
}

// removeAll removes all containers.
func removeAll(t testing.TB, p testDirs) {
	t.Helper()
	e := p.open(t, context.Background())
	all, err := e.Containers(context.Background(), "")
	if err != nil {
		t.Error(err)
	}
	for _, c := range all {
		if err := e.Remove(context.Background(), c.ID); err != nil {
			t.Error(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// namespace is that of containers: all daemons share the directory in which runc keeps containers by
// namespace and ID.
func (p testDirs) namespace() string { return filepath.Base(p.dir) }

// bundles is where containerd keeps the bundles of containers.
func (p testDirs) bundles() string {
	return filepath.Join(p.dir, "state/io.containerd.runtime.v2.task", p.namespace())
}

func (p testDirs) options() containerd.Options {
	level := slog.LevelInfo
	if os.Getenv("CTRD_DEBUG") != "" {
		level = slog.LevelDebug
	}
	return containerd.Options{
		Root:    filepath.Join(p.dir, "root"),
		State:   filepath.Join(p.dir, "state"),
		Address: p.address, RuncPath: p.runtime, Namespace: p.namespace(),
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
}

func (p testDirs) open(t testing.TB, ctx context.Context) *containerd.Engine {
	t.Helper()
	e, err := containerd.Open(ctx, p.options())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// openWithBox opens an engine that has the box image and is closed with the test.
func (p testDirs) openWithBox(t testing.TB) *containerd.Engine {
	t.Helper()
	e := p.open(t, t.Context())
	t.Cleanup(func() { _ = e.Close() })
	archive, err := boxArchive()
	if err != nil {
		t.Fatal(err)
	}
	refs, err := e.ImportArchive(t.Context(), archiveOf(t, archive))
	if err != nil {
		t.Fatal(err)
	}
	if len(refs) != 1 || refs[0] != boxRef {
		t.Fatalf("imported %q", refs)
	}
	return e
}

// archiveOf writes an archive to a file.
func archiveOf(t testing.TB, data []byte) image.Archive {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return image.Archive{Path: path}
}

// box returns a container that runs applets of the box.
func (p testDirs) box(t testing.TB, id string, args ...string) engine.ContainerConfig {
	t.Helper()
	return engine.ContainerConfig{
		ID: id, PodUID: "pod-" + id, Name: "main", Image: boxRef,
		Spec:    testSpec(t, p.namespace()+"-"+id, append([]string{"/bin/box"}, args...)),
		LogPath: filepath.Join(p.logs, id+".log"),
		Labels:  map[string]string{"io.kubernetes.pod.uid": "pod-" + id},
	}
}

func testSpec(t testing.TB, id string, args []string) *specs.Spec {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), "test")
	s, err := oci.GenerateSpec(ctx, nil, &containers.Container{ID: id}, oci.WithProcessArgs(args...), oci.WithEnv([]string{"PATH=/bin"}))
	if err != nil {
		t.Fatal(err)
	}
	s.Linux.CgroupsPath = "/runonce-test/" + id
	// As runtime/ocispec makes it.
	s.Version, s.Process.Rlimits = ocispec.Version, nil
	return s
}

// eventually waits until the container is as wanted.
func eventually(t testing.TB, e *containerd.Engine, id string, want engine.State) engine.Container {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		c, ok := find(t, e, id)
		if ok && c.State == want {
			return c
		}
		if time.Now().After(deadline) {
			t.Fatalf("container %s is %q, want %q", id, c.State, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func find(t testing.TB, e *containerd.Engine, id string) (engine.Container, bool) {
	t.Helper()
	for _, c := range list(t, e) {
		if c.ID == id {
			return c, true
		}
	}
	return engine.Container{}, false
}

func list(t testing.TB, e *containerd.Engine) []engine.Container {
	t.Helper()
	all, err := e.Containers(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// awaitEnd waits until no process has the arguments in its command line.
func awaitEnd(t *testing.T, args string) {
	t.Helper()
	for deadline := time.Now().Add(patience); running(t, args); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q does not end", args)
		}
	}
}

// running reports whether a process has the arguments in its command line.
func running(t *testing.T, args string) bool {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range procs {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(args)) {
			return true
		}
	}
	return false
}

func memoryLimit(bytes int64) *specs.LinuxMemory {
	return &specs.LinuxMemory{Limit: &bytes, Swap: &bytes}
}

// patience is a generous limit for what is quick on an idle machine.
const patience = 2 * time.Minute

// startUp starts the container and waits until its program has said that it is ready for
// signals, or deaf to them.
func startUp(t *testing.T, e *containerd.Engine, c engine.ContainerConfig) {
	t.Helper()
	if err := e.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	for {
		log, err := os.ReadFile(c.LogPath)
		if err == nil && (bytes.Contains(log, []byte(" ready\n")) || bytes.Contains(log, []byte(" deaf from now on\n"))) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("log %q, %v", log, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
