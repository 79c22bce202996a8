package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/serve/mirror"
	"github.com/runonce/runonce/runtime/serve/objects"
	"github.com/runonce/runonce/runtime/volume"
)

const boxImage = "localhost/box:1"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%v, want\n%v", what, got, want)
	}
}

// machine is one in memory, on which several processes work.
type machine struct {
	engine    *enginetest.Engine
	sandboxes *enginetest.Sandboxes
	root      string
	services  atomic.Pointer[[]*v1.Service]
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{
		engine: &enginetest.Engine{
			Program: (&enginetest.Box{}).Program,
			Store:   map[string]engine.Image{boxImage: {Ref: boxImage, ID: "sha256:1", Entrypoint: []string{"/bin/box"}, Cmd: []string{"sleep"}}},
		},
		sandboxes: &enginetest.Sandboxes{}, root: t.TempDir(),
	}
	m.define()
	return m
}

// define has the machine have these Services.
func (m *machine) define(all ...*v1.Service) { m.services.Store(&all) }

func (m *machine) logs() logs.Store {
	return logs.Store{Dir: filepath.Join(m.root, "log"), Root: m.root}
}

// process is one of the machine, with its own view of the records.
type process struct {
	*runtime.Pods
	records *record.Store
}

func (m *machine) process(t testing.TB) process { return m.processOn(t, m.engine) }

func (m *machine) processOn(t testing.TB, e engine.Engine) process {
	t.Helper()
	hosts := filepath.Join(m.root, "hosts")
	must(t, os.WriteFile(hosts, nil, 0o600))
	p := process{records: record.Open(m.root, m.root)}
	var err error
	p.Pods, err = runtime.New(t.Context(), runtime.Options{
		Engine: e, Sandboxes: m.sandboxes, Cgroups: &enginetest.Cgroups{},
		Volumes: &volume.Manager{Root: m.root, Mounter: enginetest.Mounts{}},
		Records: p.records, LogDir: m.logs().Dir, Node: ocispec.Node{Name: "node"},
		Host: runtime.Host{Host: ocispec.Host{MinOOMScoreAdj: -1000}, HostsFile: hosts, ResolvConf: filepath.Join(m.root, "none")},
	})
	must(t, err)
	return p
}

// start starts a pod.
func (p process) start(t testing.TB, pod *v1.Pod) *v1.Pod {
	t.Helper()
	must(t, p.Sync(t.Context(), pod))
	return pod
}

// newPod returns a pod with a container for each command of the box.
func newPod(name string, commands ...string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(30))},
	}
	for i, command := range commands {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("c%d", i), Image: boxImage, Args: strings.Fields(command), ImagePullPolicy: v1.PullIfNotPresent,
		})
	}
	return pod
}

// end ends a container from outside.
func (m *machine) end(t testing.TB, pod *v1.Pod, container string, code int32) {
	t.Helper()
	all, err := m.engine.Containers(t.Context(), string(pod.UID))
	must(t, err)
	i := slices.IndexFunc(all, func(c engine.Container) bool { return c.Name == container })
	m.engine.Kill(all[i].ID, code)
}

// spy is the Runtime of a mirror, which does what the test wants before it answers.
type spy struct {
	mirror.Runtime
	looks  atomic.Int32
	known  func() error
	listed func(ctx context.Context, pod *v1.Pod) error
	deaf   bool // nothing is told of the engine's events
}

func (s *spy) Known(admitted bool) ([]*record.Pod, error) {
	s.looks.Add(1)
	if s.known != nil {
		if err := s.known(); err != nil {
			return nil, err
		}
	}
	return s.Runtime.Known(admitted)
}

func (s *spy) Listed(ctx context.Context, r *record.Pod, look bool) (*v1.Pod, error) {
	if s.listed != nil {
		if err := s.listed(ctx, r.Pod); err != nil {
			return nil, err
		}
	}
	return s.Runtime.Listed(ctx, r, look)
}

func (s *spy) OnChange(ctx context.Context, f func(types.UID)) {
	if !s.deaf {
		s.Runtime.OnChange(ctx, f)
	}
}

// mirror returns one in a process of its own.
func (m *machine) mirror(t testing.TB, s *spy, change ...func(*mirror.Options)) *mirror.Mirror {
	t.Helper()
	p := m.process(t)
	s.Runtime = p.Pods
	o := mirror.Options{
		Runtime: s, Look: true, Records: p.records, Logs: m.logs(), Log: slog.New(slog.DiscardHandler),
		Services: func() ([]*v1.Service, error) { return *m.services.Load(), nil },
		Node:     &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
	}
	for _, c := range change {
		c(&o)
	}
	return mirror.New(o)
}

// follower is a client that knows all changes of a resource.
type follower struct {
	t        testing.TB
	m        *mirror.Mirror
	resource string
	version  uint64
}

func follow(t testing.TB, m *mirror.Mirror, resource string) *follower {
	return &follower{t, m, resource, m.Store().Version()}
}

// changes returns what has happened since the last call, after a look, in lines; several that say the same are one.
func (f *follower) changes() string {
	f.t.Helper()
	must(f.t, f.m.Sync(f.t.Context()))
	return f.seen()
}

// seen is changes without a look.
func (f *follower) seen() string {
	f.t.Helper()
	changes, _, err := f.m.Store().Since(f.version)
	must(f.t, err)
	var lines []string
	for _, c := range changes {
		f.version = c.Version
		if c.Resource != f.resource {
			continue
		}
		switch {
		case c.Before == nil:
			lines = append(lines, "ADDED "+show(c.Now))
		case c.Now == nil:
			lines = append(lines, "DELETED "+show(c.Before))
		default:
			lines = append(lines, "MODIFIED "+show(c.Now))
		}
	}
	return strings.Join(slices.Compact(lines), "\n")
}

// show describes an object.
func show(o objects.Object) string {
	name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "default/")
	switch o := o.(type) {
	case *v1.Pod:
		if o.DeletionTimestamp != nil {
			name += " stopping"
		}
		return name + " " + string(o.Status.Phase) + " " + strings.Join(states(o.Status), ",")
	case *v1.Event:
		name, _, _ := strings.Cut(name, ".")
		return fmt.Sprintf("%s %s %s ×%d", name, o.Reason, o.Message, o.Count)
	}
	return name
}

// states returns the state of each container in a word.
func states(st v1.PodStatus) (all []string) {
	for _, cs := range podspec.AllStatuses(st) {
		switch {
		case cs.State.Running != nil:
			all = append(all, "runs")
		case cs.State.Terminated != nil:
			all = append(all, fmt.Sprint(cs.State.Terminated.ExitCode))
		default:
			all = append(all, "waits")
		}
	}
	return all
}

// list returns the objects that there are, after a look.
func list(t testing.TB, m *mirror.Mirror, resource string) string {
	t.Helper()
	must(t, m.Sync(t.Context()))
	all, _, err := m.Store().List(resource, 0)
	must(t, err)
	lines := make([]string, 0, len(all))
	for _, o := range all {
		lines = append(lines, show(o))
	}
	return strings.Join(lines, "\n")
}

// limit bounds a wait that is short, unless nothing but its patience has the mirror look.
const limit = mirror.Patience * 8 / 10

// eventually waits until a condition holds of the store, which somebody else than the caller brings up to date.
func eventually(t testing.TB, m *mirror.Mirror, what string, condition func() bool) {
	t.Helper()
	timeout := time.After(limit)
	for {
		_, more, err := m.Store().Since(m.Store().Version())
		must(t, err)
		if condition() {
			return
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

var errBroken = errors.New("broken")
