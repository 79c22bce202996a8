package files_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/files"
)

// TestArchive: a tree that is archived and extracted is the same.
func TestArchive(t *testing.T) {
	t.Parallel()
	local, root := t.TempDir(), t.TempDir()
	write(t, local, "d/file=text", "d/sub/x=y", "d/link=->file", "d/hard=h", "d/empty=")
	if err := os.Link(filepath.Join(local, "d/hard"), filepath.Join(local, "d/twice")); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := copied(t, containerIn(t, local).Path("d"), files.Stream{W: &archive}); err != nil {
		t.Fatal(err)
	}
	if err := copied(t, &files.Archive{R: &archive}, containerIn(t, root).Path("/")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list(t, local), list(t, root)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := copied(t, &files.Archive{R: strings.NewReader("not an archive, but a text")}, containerIn(t, root).Path("/")); err == nil {
		t.Error("a text was extracted")
	}
	if err := copied(t, &files.Archive{R: strings.NewReader("")}, containerIn(t, root).Path("/none")); err == nil {
		t.Error("an archive was extracted to a directory that does not exist")
	}
}

// member is a file of an archive that somebody has made up.
type member struct {
	kind       byte
	name, link string
}

func archiveOf(all []member) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range all {
		h := &tar.Header{Typeflag: m.kind, Name: m.name, Linkname: m.link, Mode: 0o4777, Uid: os.Getuid(), Gid: os.Getgid()}
		if m.kind == tar.TypeReg {
			h.Size = 4
		}
		if err := w.WriteHeader(h); err != nil {
			continue
		}
		if m.kind == tar.TypeReg {
			_, _ = w.Write([]byte("evil"))
		}
	}
	_ = w.Close()
	return &b
}

// FuzzExtract: whatever is in an archive, nothing outside of the target changes or is linked to.
func FuzzExtract(f *testing.F) {
	for _, script := range []string{
		"2 a ../out\n0 a/x", "2 a /\n0 a/x", "0 ../out/x", "0 /out/x", "1 a ../out/secret\n0 a", "2 a .\n2 a/b ..\n0 a/b/out/x", "5 a\n2 a ..\n0 a/out/x",
		"0 a\n1 b a\n1 a b", "2 a ../out/secret\n1 b a\n0 b", "3 dev", "5 .", "0 .", "2 . ..", "0 x/../../out/y", "1 . .", "2 in/link ../../out\n0 in/link",
	} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		dir := t.TempDir()
		write(t, dir, "out/secret=s", "target/in/", "target/known=->../out", "target/in/file=before")
		var all []member
		for line := range strings.Lines(script) {
			parts := append(strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3), "", "")
			if parts[0] != "" {
				all = append(all, member{parts[0][0], parts[1], parts[2]})
			}
		}
		before := list(t, filepath.Join(dir, "out"))
		_ = copied(t, &files.Archive{R: archiveOf(all)}, files.Local().Path(filepath.Join(dir, "target")))
		_ = copied(t, &files.Archive{R: archiveOf(all), Below: "a"}, containerIn(t, dir).Path("target"))
		if diff := cmp.Diff(before, list(t, filepath.Join(dir, "out"))); diff != "" {
			t.Errorf("outside -before +after:\n%s", diff)
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, "out/secret"), &st); err != nil || st.Nlink != 1 {
			t.Errorf("%d links, %v", st.Nlink, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Errorf("%v, %v", entries, err)
		}
		for _, line := range list(t, filepath.Join(dir, "target")) {
			if strings.Contains(line, ".runonce-cp-") {
				t.Errorf("%s is left", line)
			}
		}
	})
}
