package cmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/manifests"
)

// patient is how long a change may take to be noticed on a busy machine.
const patient = 5 * time.Minute

// TestNoticesChanges: every way in which files change is noticed once.
func TestNoticesChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"a file in a directory": func(dir string) error { return os.WriteFile(filepath.Join(dir, "pods", "new.yaml"), nil, 0o600) },
		"a file that is replaced": func(dir string) error {
			if err := os.WriteFile(filepath.Join(dir, ".one.yaml.swp"), []byte("new"), 0o600); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, ".one.yaml.swp"), filepath.Join(dir, "one.yaml"))
		},
		"a file that is removed": func(dir string) error { return os.Remove(filepath.Join(dir, "pods", "a.yaml")) },
		"a link to a directory that is replaced": func(dir string) error {
			if err := os.Symlink("v2", filepath.Join(dir, "next")); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current"))
		},
		"the link in a mounted ConfigMap": func(dir string) error {
			if err := os.Symlink("..v2", filepath.Join(dir, "mounted", "..data_tmp")); err != nil {
				return err
			}
			return os.Rename(filepath.Join(dir, "mounted", "..data_tmp"), filepath.Join(dir, "mounted", "..data"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tree(t)
			paths := []string{filepath.Join(dir, "pods"), filepath.Join(dir, "one.yaml"), filepath.Join(dir, "current"), filepath.Join(dir, "mounted")}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			fingerprint := func() string { return manifests.Fingerprint(ctx, paths, manifests.Options{}) }
			w := newWatcher(paths, false, fingerprint)
			w.interval = time.Hour
			if err := w.start(ctx); err != nil {
				t.Fatal(err)
			}
			// What is next to the paths does not count.
			if err := os.WriteFile(filepath.Join(dir, "other.yaml"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			select {
			case <-w.changed:
			case <-time.After(patient):
				t.Fatal("not noticed")
			}
			select {
			case <-w.changed:
				t.Error("noticed twice")
			case <-time.After(2 * changePause):
			}
		})
	}
}

// tree makes files to watch.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"pods", "v1", "v2", "mounted/..v1", "mounted/..v2"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, "a.yaml"), []byte(sub), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"current": "v1", "mounted/..data": "..v1", "mounted/a.yaml": "..data/a.yaml"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "one.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLooks: without inotify, a change is noticed by looking.
func TestLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var files atomic.Value
		files.Store("old")
		w := newWatcher(nil, false, func() string { return fmt.Sprint(files.Load()) })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.work(ctx, nil, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.changed) != 0 {
			t.Error("a change without one")
		}
		files.Store("new")
		time.Sleep(lookInterval)
		synctest.Wait()
		if len(w.changed) != 1 {
			t.Error("not noticed")
		}
	})
}
