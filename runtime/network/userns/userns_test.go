package userns_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/network/userns"
)

func TestBook(t *testing.T) {
	t.Parallel()
	b := userns.Book{Dir: filepath.Join(t.TempDir(), "users"), Etc: t.TempDir()}
	if err := b.Release("nobody"); err != nil {
		t.Error(err)
	}
	for i, uid := range []string{"a", "b", "a", "c"} {
		want := []uint32{65536, 131072, 65536, 196608}[i]
		// A later process has its own.
		got, err := userns.Book{Dir: b.Dir, Etc: b.Etc}.Ensure(uid)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", uid, got, err, want)
		}
	}
	if err := b.Release("b"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Ensure("d"); err != nil || got != 131072 {
		t.Errorf("after a release: %d, %v", got, err)
	}
	entries, err := os.ReadDir(b.Dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%d files left, %v", len(entries), err)
	}
}

func TestBookGivesNoRangeTwice(t *testing.T) {
	t.Parallel()
	b := userns.Book{Dir: filepath.Join(t.TempDir(), "users"), Etc: t.TempDir()}
	var all sync.WaitGroup
	firsts := make([]uint32, 50)
	for i := range firsts {
		all.Go(func() {
			var err error
			if firsts[i], err = b.Ensure(fmt.Sprint("pod", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[uint32]bool{}
	for _, f := range firsts {
		if seen[f] || f%engine.UserIDs != 0 || f == 0 {
			t.Errorf("range %d", f)
		}
		seen[f] = true
	}
}

func TestBookOfTheKubelet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, subuid, subgid string
		want                 uint32
		fault                string
	}{
		{name: "its own", subuid: "x:1:2\nkubelet:655360:131072\n", subgid: "kubelet:655360:131072\n", want: 655360},
		{name: "others alone", subuid: "x:100000:65536\n", subgid: "x:100000:65536\n", want: 65536},
		{name: "not the same", subuid: "kubelet:65536:65536", fault: "must be the same"},
		{name: "not aligned", subuid: "kubelet:100000:65536", subgid: "kubelet:100000:65536", fault: "multiples of 65536"},
		{name: "root", subuid: "kubelet:0:65536", subgid: "kubelet:0:65536", fault: "above 0"},
		{name: "no number", subuid: "kubelet:x:65536", fault: "invalid syntax"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			etc := t.TempDir()
			for name, text := range map[string]string{"subuid": tt.subuid, "subgid": tt.subgid} {
				if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b := userns.Book{Dir: filepath.Join(t.TempDir(), "users"), Etc: etc}
			got, err := b.Ensure("a")
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("error %v, want %q", err, tt.fault)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("%d, %v, want %d", got, err, tt.want)
			}
			if tt.want != 655360 {
				return
			}
			_, second := b.Ensure("b")
			_, third := b.Ensure("c")
			if second != nil || third == nil || !strings.Contains(third.Error(), "could not find an empty slot") {
				t.Errorf("second %v, third %v", second, third)
			}
		})
	}
}
