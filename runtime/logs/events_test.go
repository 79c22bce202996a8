package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestEvents: a pod's events are kept and removed with its logs, and are those of one root.
func TestEvents(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	a, b := Store{Dir: dir, Root: "/a"}, Store{Dir: dir, Root: "/b"}
	pod := Pod{Namespace: "ns", Name: "web", UID: "u1"}
	write := func(s Store) {
		t.Helper()
		if err := s.MakeDir(pod, Mark{}); err != nil {
			t.Fatal(err)
		}
		fillFile(t, s.EventsPath(pod), "event\n")
	}
	left := func(want ...string) {
		t.Helper()
		var got []string
		entries, err := os.ReadDir(pod.Dir(dir))
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff, err)
		}
	}
	remove := func(s Store) {
		t.Helper()
		if err := s.Remove(pod); err != nil {
			t.Error(err)
		}
	}
	mark := func(s Store) string { return filepath.Base(s.markPath("")) }
	event := func(s Store) string { return filepath.Base(s.EventsPath(pod)) }
	write(a)
	write(b)
	create(t, b, pod, "0.log")
	remove(a)
	left(mark(b), "c", event(b))
	remove(b)
	left()

	// The directory was made before its maker was killed, and has only events.
	write(a)
	if err := os.Remove(a.markPath(pod.Dir(dir))); err != nil {
		t.Fatal(err)
	}
	create(t, a, pod, "0.log")
	left(mark(a), "c", event(a))
	remove(a)
	left()
}

// TestExpiredEvents: pods that were never started leave the logs of others alone.
func TestExpiredEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Store{Dir: filepath.Join(t.TempDir(), "log"), Root: "/a"}
		create(t, s, Pod{Namespace: "ns", Name: "started", UID: "u"}, "0.log")
		for i := range keepPods + 1 {
			time.Sleep(time.Second)
			pod := Pod{Namespace: "ns", Name: fmt.Sprint("rejected", i), UID: "u"}
			if err := errors.Join(s.MakeDir(pod, Mark{}), os.Chtimes(s.markPath(pod.Dir(s.Dir)), time.Time{}, time.Now())); err != nil {
				t.Fatal(err)
			}
		}
		all, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range Expired(all, time.Now()) {
			if i > 0 || f.Name != "rejected0" || f.HasLogs() {
				t.Errorf("%s has expired", f.Name)
			}
		}
	})
}
