package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var web = Pod{Namespace: "ns", Name: "web", UID: "u1"}

// create makes the log of an instance, and wants it to have the name.
func create(t *testing.T, s Store, pod Pod, name string) string {
	t.Helper()
	path, err := s.Create(pod, "c", Mark{Containers: []string{"c", "d"}, Init: []string{"i"}})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(s.Dir, "ns_"+pod.Name+"_"+pod.UID, "c", name); path != want {
		t.Fatalf("the log is %s, want %s", path, want)
	}
	return path
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestCreate(t *testing.T) {
	t.Parallel()
	s := Store{Dir: filepath.Join(t.TempDir(), "log"), Root: "/a"}
	create(t, s, web, "0.log")
	create(t, s, web, "1.log") // also if nothing was written
	dir := filepath.Join(web.Dir(s.Dir), "c")
	fill(t, dir, map[string]string{"7.log.20260102-030405": "", "9.log.tmp": "", "8": ""})
	create(t, s, web, "8.log")
	// Those that were removed are not used again while a later one is there.
	if err := os.Remove(filepath.Join(dir, "1.log")); err != nil {
		t.Fatal(err)
	}
	create(t, s, web, "9.log")
	mark := s.Mark(web.Dir(s.Dir))
	if diff := cmp.Diff(Mark{Root: "/a", Containers: []string{"c", "d"}, Init: []string{"i"}}, mark); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"c", "d", "i (init)"}, mark.Names()); diff != "" {
		t.Error(diff)
	}
}

// TestCreateKeepsNewest: of the logs of one container only the newest stay, unless they may be
// another root's or a kubelet's.
func TestCreateKeepsNewest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		other func(t *testing.T, s Store)
		left  bool
	}{
		{"ours", func(*testing.T, Store) {}, false},
		{"shared", func(t *testing.T, s Store) { create(t, Store{Dir: s.Dir, Root: "/b"}, web, "1.log") }, true},
		{"kubelet", func(t *testing.T, s Store) {
			if err := os.Remove(s.markPath(web.Dir(s.Dir))); err != nil {
				t.Fatal(err)
			}
			create(t, s, web, "1.log")
			if exists(t, s.markPath(web.Dir(s.Dir))) {
				t.Error("a directory that somebody else has made is marked as ours")
			}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Store{Dir: t.TempDir(), Root: "/a"}
			first := create(t, s, web, "0.log")
			fillFile(t, first+".20260102-030405", "old")
			tt.other(t, s)
			n := 1
			if tt.left {
				n = 2
			}
			for ; n <= keepInstances; n++ {
				if !exists(t, first) {
					t.Fatalf("removed before log %d", n)
				}
				create(t, s, web, fmt.Sprintf("%d.log", n))
			}
			if exists(t, first) != tt.left || exists(t, first+".20260102-030405") != tt.left {
				t.Errorf("the oldest log is there: %t, want %t", !tt.left, tt.left)
			}
			if !exists(t, filepath.Join(filepath.Dir(first), "1.log")) {
				t.Error("too much was removed")
			}
		})
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	s := Store{Dir: t.TempDir(), Root: "/a"}
	path := create(t, s, web, "0.log")
	for range 2 { // the second time there is none
		if err := s.Discard(path); err != nil || exists(t, path) {
			t.Errorf("an empty log: %v, left: %t", err, exists(t, path))
		}
	}
	fillFile(t, create(t, s, web, "0.log"), log("oFa"))
	if err := s.Discard(path); err != nil || !exists(t, path) {
		t.Errorf("a log with text: %v, left: %t", err, exists(t, path))
	}
}

// TestRemove: only what is this root's alone is removed.
func TestRemove(t *testing.T) {
	t.Parallel()
	a := Store{Dir: t.TempDir(), Root: "/a"}
	b := Store{Dir: a.Dir, Root: "/b"}
	remove := func(s Store, pod Pod, want bool) {
		t.Helper()
		if err := s.Remove(pod); err != nil || exists(t, pod.Dir(s.Dir)) == want {
			t.Errorf("%s of %s: removed: %t, %v; want %t", pod.Name, s.Root, !want, err, want)
		}
	}
	create(t, a, web, "0.log")
	remove(b, web, false)
	remove(a, web, true)
	remove(a, web, true) // no error
	kubelet := Pod{Namespace: "ns", Name: "kubelet", UID: "u2"}
	if err := os.MkdirAll(filepath.Join(kubelet.Dir(a.Dir), "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	create(t, a, kubelet, "0.log")
	remove(a, kubelet, false)
	create(t, a, web, "0.log")
	create(t, b, web, "1.log")
	remove(a, web, false)
	remove(b, web, true)
	// The directory was made before its maker was killed.
	if err := os.Mkdir(web.Dir(a.Dir), 0o755); err != nil {
		t.Fatal(err)
	}
	create(t, a, web, "0.log")
	remove(a, web, true)
}

func TestListAndExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := Store{Dir: filepath.Join(t.TempDir(), "log"), Root: "/a"}
		if all, err := a.List(); err != nil || len(all) > 0 {
			t.Errorf("no directory: %v, %v", all, err)
		}
		old := Pod{Namespace: "ns", Name: "old", UID: "u0"}
		create(t, a, old, "0.log")
		create(t, Store{Dir: a.Dir, Root: "/b"}, Pod{Namespace: "ns", Name: "other", UID: "u"}, "0.log")
		fillFile(t, filepath.Join(a.Dir, "file"), "")
		fillFile(t, filepath.Join(a.Dir, "a_b_c"), "")
		time.Sleep(keepAge)
		for i := range keepPods {
			create(t, a, Pod{Namespace: "ns", Name: fmt.Sprint("web", i), UID: "u1"}, "0.log")
		}
		owned := func() (all []Found) {
			t.Helper()
			found, err := a.List()
			if err != nil || len(found) != keepPods+2 {
				t.Fatalf("%d are listed, %v", len(found), err)
			}
			for _, f := range found {
				if f.Owned {
					all = append(all, f)
				}
			}
			return all
		}
		want := func(names ...string) {
			t.Helper()
			var got []string
			for _, f := range Expired(owned(), time.Now()) {
				got = append(got, f.Name)
			}
			if diff := cmp.Diff(names, got); diff != "" {
				t.Error(diff)
			}
		}
		want("old") // is one too many
		if err := a.Removed(Pod{Namespace: "ns", Name: "web3", UID: "u1"}); err != nil {
			t.Error(err)
		}
		if err := a.Removed(Pod{Namespace: "ns", Name: "none", UID: "u1"}); err != nil {
			t.Error(err)
		}
		if got := Expired(owned()[:2], time.Now()); got != nil {
			t.Errorf("few and young: %v", got)
		}
		time.Sleep(time.Second)
		if got := Expired([]Found{{Pod: old, Changed: time.Now().Add(-keepAge - 1)}, {Pod: web, Changed: time.Now()}}, time.Now()); len(got) != 1 || got[0].Name != "old" {
			t.Errorf("too old: %v", got)
		}
		// The pod that was removed last counts as new.
		if err := a.Removed(old); err != nil {
			t.Error(err)
		}
		if got := Expired(owned(), time.Now()); len(got) != 1 || got[0].Name == "old" {
			t.Errorf("after it was removed: %v", got)
		}
	})
}

func TestDiskUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "1.log")
	want := func(blocks int64) {
		t.Helper()
		if got, err := DiskUsage(path); err != nil || (got > 0) != (blocks > 0) || got < blocks*4096 {
			t.Errorf("%d bytes, %v, want %d blocks", got, err, blocks)
		}
	}
	fillFile(t, filepath.Join(dir, "0.log"), "another")
	want(0)
	fillFile(t, path, log("oFa"))
	want(1)
	fillFile(t, path+".20260102-030405", log("oFa"))
	want(2)
	if got, err := DiskUsage(""); err != nil || got != 0 {
		t.Errorf("no path: %d, %v", got, err)
	}
}

// TestLongName: a pod of which there can be no logs has none to mark or to remove.
func TestLongName(t *testing.T) {
	t.Parallel()
	s, pod := Store{Dir: t.TempDir(), Root: "/a"}, Pod{Namespace: "ns", Name: strings.Repeat("a", 253), UID: "u1"}
	if err := errors.Join(s.Removed(pod), s.Remove(pod)); err != nil {
		t.Error(err)
	}
}
