package image

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestOnRead: what is read of an archive adds up to its files, compressed or not.
func TestOnRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := tarOf(t, layout(), index(`"org.opencontainers.image.ref.name":"x:1"`), blob())
	write(t, filepath.Join(dir, "a.tar"), plain)
	write(t, filepath.Join(dir, "b.tar.gz"), gzipped(t, plain))
	if err := os.Symlink("a.tar", filepath.Join(dir, "c.tar")); err != nil {
		t.Fatal(err)
	}
	writeMembers(t, filepath.Join(dir, "d"), layout(), index(`"org.opencontainers.image.ref.name":"x:1"`), blob())
	found, _, err := Archives(dir)
	if err != nil || len(found) != 4 {
		t.Fatal(found, err)
	}
	files := int64(len(layout().text) + len(index(`"org.opencontainers.image.ref.name":"x:1"`).text) + len(blob().text))
	for i, want := range []int64{int64(len(plain)), int64(len(gzipped(t, plain))), int64(len(plain)), files} {
		a := found[i]
		var last, size int64
		a.OnRead = func(done, total int64) {
			if done < last {
				t.Errorf("%s: %d after %d", a.Path, done, last)
			}
			last, size = done, total
		}
		r, err := a.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Error(err)
		}
		if size != want || last < want/2 {
			t.Errorf("%s: read %d of %d bytes, want %d", a.Path, last, size, want)
		}
	}
}
