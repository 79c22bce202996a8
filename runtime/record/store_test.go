package record_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

// start puts the pod on record, as its first Sync does.
func start(t *testing.T, s *record.Store, name string) {
	t.Helper()
	_, err := s.Update(pod(name).UID, func(p *record.Pod) error {
		p.Pod, p.Removed, p.Started = pod(name), false, time.Now()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRecordOutlivesProcess: what one process writes the next one reads, all of it.
func TestRecordOutlivesProcess(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := record.Open(root, root)
	if _, err := s.Load("uid-a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before it is written: %v", err)
	}
	want := record.Pod{
		Version: record.Version, Pod: pod("a"), Started: time.Now().Round(0).UTC(), Failed: &record.Failure{Reason: "r", Message: "m"},
		Outcome:   &record.Outcome{Outcome: "o", Reason: "p", Message: "q", DecidedAt: time.Now().Round(0).UTC()},
		Sandboxed: map[string]int{"c": 1}, Discarded: map[string]int{"c": 0}, Failures: map[string]record.Failure{"": {Reason: "s", Message: "n"}},
		FailedStarts: map[string]engine.Container{"d": {ID: "d-0", State: engine.StateExited}}, Devices: map[string][]string{"c": {"g0"}},
	}
	got, err := s.Update("uid-a", func(p *record.Pod) error { *p = want; return nil })
	if err != nil {
		t.Fatal(err)
	}
	again, err := record.Open(root, root).Load("uid-a")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*record.Pod{got, again} {
		if diff := cmp.Diff(&want, p); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if names := []string{"c", "d"}; !again.IsSandboxed(engine.Container{Name: names[0], Attempt: 1}) || again.IsDiscarded(engine.Container{Name: names[0], Attempt: 1}) ||
		again.IsSandboxed(engine.Container{Name: names[1]}) {
		t.Error("which instances count is wrong")
	}
	if err := s.Remove("uid-a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.Dir("uid-a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}

// TestUpdate: changes by several processes at once all count, and one that fails or says
// nothing leaves no trace.
func TestUpdate(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := record.Open(root, root)
	if _, err := s.Update("uid-a", func(*record.Pod) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update("uid-a", func(p *record.Pod) error { p.Pod = pod("a"); return errors.New("no") }); err == nil {
		t.Error("a change that failed was written")
	}
	if all, err := s.List(); err != nil || len(all) > 0 {
		t.Fatalf("records of nothing: %v, %v", all, err)
	}
	start(t, s, "a")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			other := record.Open(root, root)
			for range 25 {
				_, err := other.Update("uid-a", func(p *record.Pod) error {
					n := p.Sandboxed["c"]
					p.Sandboxed = map[string]int{"c": n + 1}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if p, err := s.Load("uid-a"); err != nil || p.Sandboxed["c"] != 200 {
		t.Errorf("%v, %v; want 200 changes", p, err)
	}
	path := filepath.Join(s.Dir("uid-a"), "pod.json")
	before := stat(t, path)
	if _, err := s.Update("uid-a", func(p *record.Pod) error { p.Ready = false; return nil }); err != nil || !os.SameFile(before, stat(t, path)) {
		t.Errorf("a record that is the same was written again, %v", err)
	}
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestUpdateAmong: what is chosen among all pods is chosen once.
func TestUpdateAmong(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		start(t, record.Open(root, root), name)
	}
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			_, err := record.Open(root, root).UpdateAmong(pod(name).UID, func(p *record.Pod, others []*record.Pod) error {
				taken := 0
				for _, o := range others {
					taken += len(o.Devices["main"])
				}
				p.Devices = map[string][]string{"main": {names[taken]}}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	chosen := map[string]bool{}
	all, err := record.Open(root, root).List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		chosen[p.Devices["main"][0]] = true
	}
	if len(chosen) != len(names) {
		t.Errorf("chosen: %v", chosen)
	}
}

// TestDamagedRecord: a record that is torn or empty is that of a pod that has failed.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := record.Open(root, root)
	start(t, s, "a")
	start(t, s, "b")
	if err := os.Truncate(filepath.Join(s.Dir("uid-a"), "pod.json"), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.NewRun().Enter(t.Context()); err != nil {
		t.Errorf("a run is kept from planning: %v", err)
	}
	all, err := s.List()
	if err != nil || len(all) != 2 {
		t.Fatalf("%d records, %v", len(all), err)
	}
	i := slices.IndexFunc(all, func(p *record.Pod) bool { return p.Pod.UID == "uid-a" })
	if p := all[i]; p.Failed == nil || !strings.Contains(p.Failed.Message, "uid-a/pod.json: unexpected end of JSON input") || p.Started.IsZero() {
		t.Errorf("%+v", p)
	}
	if err := s.Remove("uid-a"); err != nil {
		t.Error(err)
	}
	start(t, s, "a")
	if p, err := s.Load("uid-a"); err != nil || p.Failed != nil || p.Pod.Name != "a" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestLock: one at a time works on a pod, also when the lock's file is removed in between.
func TestLock(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := record.Open(root, root)
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			lock, err := s.Lock(t.Context(), "uid")
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			inside.Add(-1)
			if i%3 == 0 {
				lock.Discard()
			} else {
				lock.Release()
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
	lock, err := s.Lock(t.Context(), "uid")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, "uid"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("somebody has it: %v", err)
	}
	lock.Discard()
	if left, err := os.ReadDir(filepath.Join(root, "locks")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
