package runs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

// kill lets go of the run's files as a killed process does.
func (r *Run) kill(t *testing.T) {
	t.Helper()
	for _, f := range []*os.File{r.plan, r.booking} {
		if f != nil {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.plan, r.booking = nil, nil
}

func enter(t *testing.T, root string, pods ...*v1.Pod) *Run {
	t.Helper()
	r := New(root)
	if err := r.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Book(pods); err != nil {
		t.Fatal(err)
	}
	return r
}

func booked(t *testing.T, root string) []string {
	t.Helper()
	pods, err := New(root).Booked()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

func files(t *testing.T, root string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, dirName))
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
	if got := booked(t, root); got != nil {
		t.Errorf("before any run: %v", got)
	}
	a := enter(t, root, pod("a"))
	late := New(root)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := late.Enter(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("beside a run whose turn it is: %v", err)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	b := enter(t, root, pod("b"), pod("c"))
	if got := booked(t, root); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("two runs have booked %v", got)
	}
	if others, err := b.Booked(); err != nil || len(others) != 1 || others[0].Name != "a" {
		t.Errorf("one run sees of the other: %v, %v", others, err)
	}
	for _, r := range []*Run{a, b, b, late} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := booked(t, root); got != nil {
		t.Errorf("after all runs: %v", got)
	}
	if got := files(t, root); !slices.Equal(got, []string{planLock}) {
		t.Errorf("left: %v", got)
	}
}

// TestKilled: whatever the instant, a killed run books nothing, and the next one finds its
// turn and clears away after it.
func TestKilled(t *testing.T) {
	t.Parallel()
	steps := map[string]func(t *testing.T, root string) *Run{
		"in its turn": func(t *testing.T, root string) *Run {
			r := New(root)
			if err := r.Enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			return r
		},
		"while it books": func(t *testing.T, root string) *Run {
			r := enter(t, root)
			if err := os.Rename(r.marks[:len(r.marks)-len(takenExt)]+bookingExt, r.booking.Name()); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(r.booking.Name(), 3); err != nil {
				t.Fatal(err)
			}
			return r
		},
		"in its turn, booked": func(t *testing.T, root string) *Run { return enter(t, root, pod("a")) },
		"at work": func(t *testing.T, root string) *Run {
			r := enter(t, root, pod("a"))
			if err := errors.Join(New(root).Take(pod("a"), pod("boss")), r.Leave()); err != nil {
				t.Fatal(err)
			}
			return r
		},
		"while it closes": func(t *testing.T, root string) *Run {
			r := enter(t, root, pod("a"))
			if err := os.RemoveAll(r.marks); err != nil {
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
			if got := booked(t, root); got != nil {
				t.Errorf("it has booked %v", got)
			}
			next := enter(t, root, pod("b"))
			if got := booked(t, root); !slices.Equal(got, []string{"b"}) {
				t.Errorf("then is booked: %v", got)
			}
			if got := files(t, root); len(got) != 3 {
				t.Errorf("left beside the next one's: %v", got)
			}
			if err := next.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	a := enter(t, root, pod("a"), pod("b"), pod("c"))
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	b := enter(t, root, pod("boss"))
	for taken, by := range map[string]*v1.Pod{"a": pod("boss"), "b": nil, "unknown": pod("boss")} {
		if err := b.Take(pod(taken), by); err != nil {
			t.Fatal(err)
		}
	}
	if got := booked(t, root); !slices.Equal(got, []string{"boss", "c"}) {
		t.Errorf("booked: %v", got)
	}
	var taken *Taken
	if err := a.Barred(pod("a")); !errors.As(err, &taken) || taken.PreemptedBy() == nil {
		t.Fatalf("the preempted pod: %v", err)
	}
	if diff := cmp.Diff([]string{"default", "boss"}, []string{taken.By.Namespace, taken.By.Name}); diff != "" {
		t.Errorf("by (-want +got):\n%s", diff)
	}
	if err := a.Barred(pod("b")); !errors.As(err, &taken) || taken.PreemptedBy() != nil || !taken.Permanent() {
		t.Errorf("the pod that was taken down: %v", err)
	}
	for _, r := range []*Run{a, b, New(root)} {
		if err := r.Barred(pod("c")); err != nil {
			t.Errorf("a pod that nobody took: %v", err)
		}
	}
	if err := b.Barred(pod("a")); err != nil {
		t.Errorf("whoever took a pod may start it: %v", err)
	}
	if err := errors.Join(a.Close(), b.Take(pod("c"), nil), b.Close()); err != nil {
		t.Error(err)
	}
}
