package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cache, a := Cache(filepath.Join(dir, "cache")), Archive{Path: filepath.Join(dir, "a.tar")}
	write(t, a.Path, []byte("one"))
	if _, ok := cache.Load(a); ok {
		t.Error("loaded before it was stored")
	}
	want := map[string]string{"docker.io/library/x:1": digest()}
	if err := cache.Store(a, want); err != nil {
		t.Fatal(err)
	}
	if got, ok := cache.Load(a); !ok || !cmp.Equal(want, got) {
		t.Errorf("%v, %v", got, ok)
	}
	other := Archive{Path: filepath.Join(dir, "b.tar")}
	if err := os.Link(a.Path, other.Path); err != nil {
		t.Fatal(err)
	}
	if _, ok := cache.Load(other); ok {
		t.Error("loaded for another path")
	}
	// The same size, and another content.
	write(t, a.Path+".new", []byte("two"))
	if err := os.Rename(a.Path+".new", a.Path); err != nil {
		t.Fatal(err)
	}
	if _, ok := cache.Load(a); ok {
		t.Error("loaded after a change")
	}
	if err := cache.Store(Archive{Path: dir}, want); err != nil {
		t.Error(err)
	}
	if _, ok := cache.Load(Archive{Path: dir}); ok {
		t.Error("loaded for a directory")
	}
}
