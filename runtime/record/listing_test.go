package record_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/record"
)

// TestListOfOthers: what others change is in the list at once, and what they do not tell is after a second.
func TestListOfOthers(t *testing.T) {
	t.Parallel()
	root, state := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := record.Open(root, state), record.Open(root, state)
		start := func(s *record.Store, name string) {
			t.Helper()
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
			if _, err := s.Update(pod.UID, func(p *record.Pod) error { p.Start(pod); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		want := func(names string) {
			t.Helper()
			for _, s := range []*record.Store{ours, theirs} {
				all, err := s.List()
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, p := range all {
					got = append(got, p.Pod.Name)
				}
				if strings.Join(got, " ") != names {
					t.Errorf("%q, want %q", got, names)
				}
			}
		}
		want("")
		start(ours, "b")
		want("b")
		start(ours, "a")
		start(theirs, "c")
		want("a b c")
		start(theirs, "d")
		start(ours, "e")
		want("a b c d e")
		if err := theirs.Remove("b"); err != nil {
			t.Fatal(err)
		}
		if err := ours.Remove("d"); err != nil {
			t.Fatal(err)
		}
		want("a c e")
		if _, err := ours.Update("c", func(p *record.Pod) error { p.Ready = true; return nil }); err != nil {
			t.Fatal(err)
		}
		if all, err := theirs.List(); err != nil || !all[1].Ready {
			t.Errorf("%v, %v: the second should be ready", all, err)
		}

		// As an earlier version would do it, which does not tell.
		if err := os.RemoveAll(filepath.Join(root, "pods", "a")); err != nil {
			t.Fatal(err)
		}
		want("c e")
		if err := os.Chmod(filepath.Join(root, "pods", "c", "pod.json"), 0o400); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if all, err := theirs.List(); err != nil || all[0].Failed == nil {
			t.Errorf("%v, %v: the first should have been stopped", all, err)
		}

		// A process that was killed has not said that its change is over.
		lock := filepath.Join(root, "pods.lock")
		if err := os.WriteFile(lock, []byte{9, 9, 9, 9, 9, 9, 9, 9}, 0o600); err != nil {
			t.Fatal(err)
		}
		want("c e")
		if err := os.Chmod(filepath.Join(root, "pods", "e", "pod.json"), 0o400); err != nil {
			t.Fatal(err)
		}
		if all, err := ours.List(); err != nil || all[1].Failed == nil {
			t.Errorf("%v, %v: the second should have been stopped", all, err)
		}
		if err := os.WriteFile(lock, []byte{9, 9, 9, 9, 9, 9, 9, 9}, 0o600); err != nil {
			t.Fatal(err)
		}
		start(theirs, "a")
		want("a c e")
		if err := os.WriteFile(lock, []byte{9, 9, 9, 9, 9, 9, 9, 9}, 0o600); err != nil {
			t.Fatal(err)
		}
		want("a c e")
		if err := os.Chmod(filepath.Join(root, "pods", "a", "pod.json"), 0o400); err != nil {
			t.Fatal(err)
		}
		start(ours, "b") // who ends a change knows of its own only
		if all, err := ours.List(); err != nil || all[0].Failed == nil {
			t.Errorf("%v, %v: the first should have been stopped", all, err)
		}
	})
}
