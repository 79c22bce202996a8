package record

import (
	"testing"
	"time"
)

// outcome is what the record has of pod "a".
func outcome(t *testing.T, root string) string {
	t.Helper()
	p, err := Open(root, root).Load(newPod("a").UID)
	if err != nil {
		t.Fatal(err)
	}
	if p.Outcome == nil {
		return ""
	}
	return p.Outcome.Outcome
}

// conclude records an outcome for the run.
func (r *Run) conclude(t *testing.T, name, outcome string) {
	t.Helper()
	if err := r.store.Conclude(newPod(name).UID, &Outcome{Outcome: outcome, DecidedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
}

// TestConclude: an outcome lasts until the next run admits the pod.
func TestConclude(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	first := enter(t, root, "a", "b")
	first.begin(t, "a")
	first.conclude(t, "a", "Running")
	first.conclude(t, "b", "Failed") // was never started
	first.conclude(t, "none", "Failed")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got := outcome(t, root); got != "Running" {
		t.Errorf("after the first run: %q", got)
	}
	all, err := first.store.List()
	if err != nil || len(all) != 1 {
		t.Errorf("records: %v, %v", all, err)
	}
	second := enter(t, root, "a")
	if got := outcome(t, root); got != "" {
		t.Errorf("while the second run starts it: %q", got)
	}
	second.conclude(t, "a", "Failed")
	if err := second.store.Conclude(newPod("a").UID, nil); err != nil {
		t.Fatal(err)
	}
	if got := outcome(t, root); got != "" {
		t.Errorf("taken back: %q", got)
	}
}

// TestConcludeLostPod: a run says nothing about a pod that another process has stopped.
func TestConcludeLostPod(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	run := enter(t, root, "a")
	run.begin(t, "a")
	if err := run.Leave(); err != nil {
		t.Fatal(err)
	}
	down := Open(root, root).NewRun()
	if err := down.Revoke(newPod("a"), nil); err != nil {
		t.Fatal(err)
	}
	run.conclude(t, "a", "Succeeded")
	if got := outcome(t, root); got != "" {
		t.Errorf("before it is removed: %q", got)
	}
	if err := down.store.Remove(newPod("a").UID); err != nil {
		t.Fatal(err)
	}
	run.conclude(t, "a", "Succeeded")
	if got := outcome(t, root); got != "" {
		t.Errorf("of the removed pod: %q", got)
	}
}

// TestIsWatched: a pod is watched while a run lives that may start it again.
func TestIsWatched(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	watched := func() bool {
		s := Open(root, root)
		p, err := s.Load(newPod("a").UID)
		if err != nil {
			t.Fatal(err)
		}
		return s.IsWatched(p)
	}
	run := enter(t, root, "a")
	run.begin(t, "a")
	if !watched() {
		t.Error("not watched by its run")
	}
	run.kill(t)
	if watched() {
		t.Error("watched by a killed run")
	}
	second := enter(t, root, "a")
	if err := Open(root, root).NewRun().Revoke(newPod("a"), nil); err != nil {
		t.Fatal(err)
	}
	if watched() {
		t.Error("watched by a run that has lost it")
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}
