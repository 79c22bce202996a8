package record

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

func newPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

// kill closes the run's files as a killed process does.
func (r *Run) kill(t *testing.T) {
	t.Helper()
	for _, f := range []*os.File{r.plan, r.alive} {
		if f != nil {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.plan, r.alive = nil, nil
}

// enter is a process whose run has reserved the pods, in its turn to plan.
func enter(t *testing.T, root string, names ...string) *Run {
	t.Helper()
	r := Open(root, root).NewRun()
	if err := r.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods := make([]*v1.Pod, 0, len(names))
	for _, name := range names {
		pods = append(pods, newPod(name))
	}
	if err := r.Reserve(pods); err != nil {
		t.Fatal(err)
	}
	return r
}

// begin starts the pod for the run.
func (r *Run) begin(t *testing.T, name string) {
	t.Helper()
	_, err := r.store.Update(newPod(name).UID, func(p *Pod) error {
		p.Pod, p.Removed, p.Started = newPod(name), false, time.Now()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reserved are the names of the pods that runs have reserved.
func reserved(t *testing.T, root string) []string {
	t.Helper()
	pods, err := Open(root, root).NewRun().Reserved()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

// recorded names the pods on record.
func recorded(t *testing.T, root string) []string {
	t.Helper()
	all, err := Open(root, root).List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Pod.Name)
	}
	return names
}

func runFiles(t *testing.T, root string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, runsDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestTurns(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if got := reserved(t, root); got != nil {
		t.Errorf("before any run: %v", got)
	}
	a := enter(t, root, "a")
	late := Open(root, root).NewRun()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := late.Enter(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("while another run plans: %v", err)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	b := enter(t, root, "b", "c")
	if got := reserved(t, root); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("two runs have reserved %v", got)
	}
	if others, err := b.Reserved(); err != nil || len(others) != 1 || others[0].Name != "a" {
		t.Errorf("one run sees of the other: %v, %v", others, err)
	}
	a.begin(t, "a")
	for _, r := range []*Run{a, b, b, late} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := reserved(t, root); got != nil {
		t.Errorf("after all runs: %v", got)
	}
	if got := runFiles(t, root); !slices.Equal(got, []string{planLock}) {
		t.Errorf("left: %v", got)
	}
	if got := recorded(t, root); !slices.Equal(got, []string{"a"}) {
		t.Errorf("on record: %v, want what was started", got)
	}
}

// TestKilledRun: a run that is killed at any time reserves nothing, and the next one finds its
// turn and cleans up after it.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	steps := map[string]func(t *testing.T, root string) *Run{
		"in its turn": func(t *testing.T, root string) *Run {
			r := Open(root, root).NewRun()
			if err := r.Enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r
		},
		"in its turn, reserved": func(t *testing.T, root string) *Run { return enter(t, root, "a") },
		"at work": func(t *testing.T, root string) *Run {
			r := enter(t, root, "a")
			if err := errors.Join(Open(root, root).NewRun().Revoke(newPod("a"), newPod("boss")), r.Leave()); err != nil {
				t.Fatal(err)
			}
			return r
		},
		"when a pod of its own was removed": func(t *testing.T, root string) *Run {
			r := enter(t, root, "a")
			r.begin(t, "a")
			if err := errors.Join(Open(root, root).Remove("uid-a"), r.Leave()); err != nil {
				t.Fatal(err)
			}
			return r
		},
		"while it closes": func(t *testing.T, root string) *Run {
			r := enter(t, root, "a")
			if err := os.Remove(r.alive.Name()); err != nil {
				t.Fatal(err)
			}
			return r
		},
	}
	for name, step := range steps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			step(t, root).kill(t)
			if got := reserved(t, root); got != nil {
				t.Errorf("it has reserved %v", got)
			}
			if name == "in its turn, reserved" {
				if err := Open(root, root).NewRun().Sweep(); err != nil {
					t.Fatal(err)
				}
				if got := recorded(t, root); got != nil {
					t.Errorf("on record after a sweep: %v", got)
				}
			}
			next := enter(t, root, "b")
			if got := reserved(t, root); !slices.Equal(got, []string{"b"}) {
				t.Errorf("then is reserved: %v", got)
			}
			if got := recorded(t, root); !slices.Equal(got, []string{"b"}) {
				t.Errorf("on record: %v", got)
			}
			if got := runFiles(t, root); len(got) != 2 {
				t.Errorf("left besides the next one's: %v", got)
			}
			if err := next.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRevoke: a run learns that a pod of its own was stopped by another process, and for whom,
// also when nothing of the pod is left, and also when that other process has started it again.
func TestRevoke(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a := enter(t, root, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		a.begin(t, name)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	b := enter(t, root, "boss")
	for name, by := range map[string]*v1.Pod{"a": newPod("boss"), "b": nil, "unknown": newPod("boss")} {
		if err := errors.Join(b.Revoke(newPod(name), by), b.store.Remove(newPod(name).UID)); err != nil {
			t.Fatal(err)
		}
	}
	if got := reserved(t, root); !slices.Equal(got, []string{"boss", "c"}) {
		t.Errorf("reserved: %v", got)
	}
	owned := func(r *Run, name string) error {
		t.Helper()
		p, err := r.store.Load(newPod(name).UID)
		if err != nil {
			t.Fatal(err)
		}
		return r.store.Owned(p)
	}
	var lost *LostError
	if err := owned(a, "a"); !errors.As(err, &lost) || lost.PreemptedBy() == nil || lost.PreemptedBy().Name != "boss" || lost.PreemptedBy().Namespace != "default" {
		t.Errorf("the preempted pod: %v", err)
	}
	if err := owned(a, "b"); !errors.As(err, &lost) || lost.PreemptedBy() != nil || !lost.Permanent() {
		t.Errorf("the pod that was stopped: %v", err)
	}
	if err := b.Leave(); err != nil {
		t.Fatal(err)
	}
	c := enter(t, root, "a")
	c.begin(t, "a")
	if err := owned(a, "a"); !errors.As(err, &lost) || lost.PreemptedBy() == nil {
		t.Errorf("the preempted pod, started again by another run: %v", err)
	}
	for _, r := range []*Run{a, b, Open(root, root).NewRun()} {
		if err := owned(r, "c"); err != nil {
			t.Errorf("a pod that was not revoked: %v", err)
		}
	}
	if err := owned(c, "a"); err != nil {
		t.Errorf("who takes a pod may start it: %v", err)
	}
	if err := errors.Join(a.Close(), b.Revoke(newPod("c"), nil), b.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if got := recorded(t, root); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("on record in the end: %v, want what runs", got)
	}
}

// TestAbandon: a run whose plan is not carried out leaves the pods to the run before it of the same
// process, which still learns that they were stopped.
func TestAbandon(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a := enter(t, root, "a")
	a.begin(t, "a")
	next := a.store.NewRun()
	if err := errors.Join(next.Reserve([]*v1.Pod{newPod("a"), newPod("b")}), next.Abandon()); err != nil {
		t.Fatal(err)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	if got := reserved(t, root); !slices.Equal(got, []string{"a"}) {
		t.Errorf("reserved: %v", got)
	}
	other := Open(root, root).NewRun()
	if err := other.Revoke(newPod("a"), nil); err != nil {
		t.Fatal(err)
	}
	p, err := a.store.Load(newPod("a").UID)
	if err != nil {
		t.Fatal(err)
	}
	var lost *LostError
	if err := a.store.Owned(p); !errors.As(err, &lost) {
		t.Errorf("the pod that was stopped: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestListForgets: what other processes have removed is not kept in memory.
func TestListForgets(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, other := Open(root, root), Open(root, root)
	for _, name := range []string{"a", "b"} {
		if _, err := other.Update(newPod(name).UID, func(p *Pod) error { p.Start(newPod(name)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.List(); len(all) != 2 || err != nil {
		t.Fatalf("%v, %v", all, err)
	}
	if err := other.Remove(newPod("a").UID); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(); len(all) != 1 || len(s.cache) != 1 || err != nil {
		t.Errorf("%v, %d in memory, %v", all, len(s.cache), err)
	}
}

// TestAdopt: a pod belongs to the path from which it was last admitted, also one whose record
// is older than paths.
func TestAdopt(t *testing.T) {
	t.Parallel()
	store := Open(t.TempDir(), t.TempDir())
	read := func(path string) *v1.Pod {
		pod := newPod("web")
		if path != "" {
			pod.Annotations = map[string]string{podspec.AnnotationPath: path}
		}
		return pod
	}
	for _, step := range []struct{ from, want string }{{"", ""}, {"/a", "/a"}, {"/b", "/b"}, {"", "/b"}} {
		run := store.NewRun()
		if err := run.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := run.Reserve([]*v1.Pod{read(step.from)}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Update(read("").UID, func(p *Pod) error { p.Start(read("")); return nil }); err != nil {
			t.Fatal(err)
		}
		all, err := store.List()
		if err != nil || len(all) != 1 {
			t.Fatalf("%d records, %v", len(all), err)
		}
		if got := all[0].Pod.Annotations[podspec.AnnotationPath]; got != step.want {
			t.Errorf("admitted from %q: recorded %q, want %q", step.from, got, step.want)
		}
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReserveMore: a run can reserve more pods, and learns whether another one has reserved some meanwhile.
func TestReserveMore(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	first := enter(t, root, "a")
	if err := first.Leave(); err != nil {
		t.Fatal(err)
	}
	more := func(r *Run, others bool, names ...string) {
		t.Helper()
		got, err := r.Resume(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got != others {
			t.Errorf("others: %v, want %v", got, others)
		}
		var pods []*v1.Pod
		for _, name := range names {
			pods = append(pods, newPod(name))
		}
		if err := errors.Join(r.ReserveMore(pods), r.Leave()); err != nil {
			t.Fatal(err)
		}
	}
	more(first, false, "b")
	second := enter(t, root, "x")
	if err := second.Leave(); err != nil {
		t.Fatal(err)
	}
	more(first, true, "c")
	more(first, false)
	more(second, true, "y")
	if got, want := reserved(t, root), []string{"a", "b", "c", "x", "y"}; !slices.Equal(got, want) {
		t.Errorf("reserved: %v, want %v", got, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := recorded(t, root), []string{"x", "y"}; !slices.Equal(got, want) {
		t.Errorf("recorded after the end of the first run: %v, want %v", got, want)
	}
	second.kill(t)
	third := enter(t, root, "z")
	if err := third.Leave(); err != nil {
		t.Fatal(err)
	}
	more(third, false)
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
}
