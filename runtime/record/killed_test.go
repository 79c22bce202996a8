package record

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/flock"
)

// removing is enter for a run that removes its pods, and starts them.
func removing(t *testing.T, root string, names ...string) *Run {
	t.Helper()
	r := Open(root, root).NewRun()
	r.Removes, r.Cleanup = "all", &flock.Cleanup{Command: []string{"clean"}, Objects: []string{"Service a"}}
	if err := r.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := r.reserveFor(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		_, err := r.store.Update(newPod(name).UID, func(p *Pod) error {
			p.Start(newPod(name))
			r.store.Tie(p)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *Run) reserveFor(name string) error {
	if r.alive == nil {
		return r.Reserve([]*v1.Pod{newPod(name)})
	}
	return r.ReserveMore([]*v1.Pod{newPod(name)})
}

// killedRuns names the pods of each killed run.
func killedRuns(t *testing.T, root string) (names [][]string, all []Killed) {
	t.Helper()
	all, err := Open(root, root).Killed()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		var of []string
		for _, p := range k.Pods {
			of = append(of, p.Pod.Name)
		}
		names = append(names, of)
	}
	return names, all
}

// TestKilled: what a killed run has started is to be removed, unless a living run has it, until it is forgotten. Others do
// not remove its file before.
func TestKilled(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	killed := removing(t, root, "a", "b")
	if err := killed.Leave(); err != nil {
		t.Fatal(err)
	}
	file := killed.alive.Name()
	p, err := killed.store.Load(newPod("a").UID)
	if err != nil || killed.store.RunFile(p) != file || !killed.Keeps() {
		t.Errorf("the file of the run of a is %q, %v; want %q", killed.store.RunFile(p), err, file)
	}
	if names, _ := killedRuns(t, root); len(names) > 0 {
		t.Errorf("killed while it lives: %v", names)
	}
	other := enter(t, root, "b", "c")
	other.begin(t, "c")
	killed.kill(t)
	if names, _ := killedRuns(t, root); !cmp.Equal(names, [][]string{{"a"}}) {
		t.Errorf("%v", names)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	next := enter(t, root) // which sweeps
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	names, all := killedRuns(t, root)
	if !cmp.Equal(names, [][]string{{"a", "b"}}) || !cmp.Equal(all[0].Objects, []string{"Service a"}) || all[0].Removes != "all" {
		t.Fatalf("%v %+v", names, all)
	}
	if err := next.store.Discard(all[0]); err != nil {
		t.Fatal(err)
	}
	if p, err := next.store.Load(newPod("b").UID); err != nil || next.store.RunFile(p) != "" {
		t.Errorf("b still belongs to the run: %q, %v", next.store.RunFile(p), err)
	}
	if names, _ := killedRuns(t, root); len(names) > 0 {
		t.Errorf("not forgotten: %v", names)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}

// TestEndedByItself: what a run keeps that would have removed it does not belong to it any more.
func TestEndedByItself(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	run := removing(t, root, "a")
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err := run.store.Load(newPod("a").UID); err != nil || run.store.RunFile(p) != "" || p.Started.After(time.Now()) {
		t.Errorf("%+v, %v", p, err)
	}
}
