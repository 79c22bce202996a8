package files_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/files"
)

// containerIn returns a container whose root directory is dir.
func containerIn(t testing.TB, dir string) *files.Tree {
	t.Helper()
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := files.Container(engine.Files{Root: root, Close: root.Close})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tree.Close()
		_ = root.Close()
	})
	return tree
}

// at is the time of the files of tests.
var at = time.Unix(1_700_000_000, 123_456_789)

// write makes files: the content of a name that ends in "/" is ignored, one after "->" is what a link leads to.
func write(t testing.TB, dir string, all ...string) {
	t.Helper()
	for _, one := range all {
		name, content, _ := strings.Cut(one, "=")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch to, isLink := strings.CutPrefix(content, "->"); {
		case err != nil:
		case isLink:
			err = os.Symlink(to, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// list returns what is below a directory, as write has it, with modes other than usual, and times if they are at.
func list(t testing.TB, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		usual, line := fs.FileMode(0o644), name
		switch {
		case info.IsDir():
			usual, line = 0o755|fs.ModeDir, name+"/"
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			usual, line = info.Mode(), name+"=->"+to
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line = name + "=" + string(data)
		}
		if info.Mode() != usual {
			line += " " + info.Mode().String()
		}
		if info.ModTime().Equal(at) {
			line += " in time"
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func copied(t testing.TB, from files.Source, to files.Target) error {
	t.Helper()
	return files.Copy(t.Context(), from, to, files.Options{})
}

// TestCopyKeeps: what is kept of files, in both directions.
func TestCopyKeeps(t *testing.T) {
	t.Parallel()
	local, root := t.TempDir(), t.TempDir()
	write(t, local, "d/file=text", "d/empty=", "d/sub/deep=x", "d/link=->sub/deep", "d/out=->/etc/passwd", "d/hard=y", "d/a\nb=z", "d/none/")
	for name, mode := range map[string]os.FileMode{"d/file": 0o640 | fs.ModeSetuid, "d/empty": 0o400, "d/sub": 0o555, "d": 0o1777&^0o1000 | fs.ModeSticky} {
		if err := os.Chmod(filepath.Join(local, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(local, "d/sub"), 0o755) })
	if err := os.Link(filepath.Join(local, "d/hard"), filepath.Join(local, "d/twice")); err != nil {
		t.Fatal(err)
	}
	hasXattrs := unix.Setxattr(filepath.Join(local, "d/file"), "user.color", []byte("red"), 0) == nil
	for _, name := range []string{"d/file", "d/link", "d/sub", "d"} {
		times := []unix.Timespec{unix.NsecToTimespec(at.UnixNano()), unix.NsecToTimespec(at.UnixNano())}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(local, name), times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
	want := list(t, local)
	if err := copied(t, files.Local().Path(filepath.Join(local, "d")), containerIn(t, root).Path("/")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, list(t, root)); diff != "" {
		t.Errorf("in the container -want +got:\n%s", diff)
	}
	back := t.TempDir()
	if err := copied(t, containerIn(t, root).Path("d"), files.Local().Path(back)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, dir := range []string{root, back} {
			_ = os.Chmod(filepath.Join(dir, "d/sub"), 0o755)
		}
	})
	for i, line := range want {
		want[i] = strings.Replace(line, "urw-r-----", "-rw-r-----", 1) // nobody gets rights of this machine
	}
	if diff := cmp.Diff(want, list(t, back)); diff != "" {
		t.Errorf("back -want +got:\n%s", diff)
	}
	for _, dir := range []string{root, back} {
		var one, two unix.Stat_t
		if err := errors.Join(unix.Stat(filepath.Join(dir, "d/hard"), &one), unix.Stat(filepath.Join(dir, "d/twice"), &two)); err != nil || one.Ino != two.Ino {
			t.Errorf("the hard link is lost: %v", err)
		}
		value := make([]byte, 10)
		if n, err := unix.Getxattr(filepath.Join(dir, "d/file"), "user.color", value); hasXattrs && (err != nil || string(value[:n]) != "red") {
			t.Errorf("the extended attribute is lost: %q, %v", value[:max(n, 0)], err)
		}
	}
}

// TestCopyOwner: owners are kept as numbers.
func TestCopyOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others")
	}
	local, root := t.TempDir(), t.TempDir()
	write(t, local, "d/file=x", "d/link=->file")
	for _, name := range []string{"d", "d/file", "d/link"} {
		if err := os.Lchown(filepath.Join(local, name), 1234, 5678); err != nil {
			t.Fatal(err)
		}
	}
	if err := copied(t, files.Local().Path(filepath.Join(local, "d")), containerIn(t, root).Path("/")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "d/file", "d/link"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, name), &st); err != nil || st.Uid != 1234 || st.Gid != 5678 {
			t.Errorf("%s belongs to %d:%d, %v", name, st.Uid, st.Gid, err)
		}
	}
}

// TestCopyPlaces: the same file is there, wherever it goes; what is in the way is replaced at once or refused.
func TestCopyPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		from, to string
		want     []string // in the container, besides what was there
		err      string
	}{
		{name: "a file as a file", from: "f", to: "new", want: []string{"new=text"}},
		{name: "a file over a file", from: "f", to: "old", want: []string{"old=text"}},
		{name: "a file over what a link leads to", from: "f", to: "to-old", want: []string{"old=text"}},
		{name: "a file to where a link leads to nothing", from: "f", to: "to-none", want: []string{"dir/none=text"}},
		{name: "a file into a directory", from: "f", to: "/dir", want: []string{"dir/f=text"}},
		{name: "a file into a directory by a link", from: "f", to: "to-dir", want: []string{"dir/f=text"}},
		{name: "a file into a directory by an absolute link", from: "f", to: "abs", want: []string{"dir/f=text"}},
		{name: "a file by a link that would leave", from: "f", to: "up/f2", want: []string{"f2=text"}},
		{name: "a directory as a directory", from: "d", to: "new", want: []string{"new/", "new/sub/", "new/sub/x=y"}},
		{name: "a directory into a directory", from: "d", to: "dir", want: []string{"dir/d/", "dir/d/sub/", "dir/d/sub/x=y"}},
		{name: "the contents of a directory", from: "d/.", to: "dir", want: []string{"dir/sub/", "dir/sub/x=y"}},
		{name: "the contents of a directory as another", from: "d/.", to: "new", want: []string{"new/", "new/sub/", "new/sub/x=y"}},
		{name: "a link", from: "l", to: "new", want: []string{"new=->f"}},
		{name: "what a link leads to", from: "ld/", to: "new", want: []string{"new/", "new/sub/", "new/sub/x=y"}},
		{name: "a file without a directory", from: "f", to: "none/new", err: "no such file or directory"},
		{name: "a file below a file", from: "f", to: "old/new", err: "not a directory"},
		{name: "a file to a directory that is none", from: "f", to: "none/", err: "does not exist"},
		{name: "a directory over a file", from: "d", to: "old", err: "cannot overwrite a file with a directory"},
		{name: "a directory over a file inside", from: "c/.", to: "clash", err: `"sub": cannot overwrite something else with a directory`},
		{name: "a file over a directory inside", from: "f", to: "clash2", err: "cannot overwrite a directory"},
		{name: "a pipe", from: "p", to: "new", err: "a named pipe cannot be copied"},
		{name: "over a pipe", from: "f", to: "pipe", err: "not overwritten"},
		{name: "a file that is no directory", from: "f/", to: "dir", err: "not a directory"},
	} {
		local, root := t.TempDir(), t.TempDir()
		write(t, local, "f=text", "d/sub/x=y", "c/sub/x=y", "l=->f", "ld=->d")
		there := []string{
			"old=before", "dir/", "to-old=->old", "to-dir=->dir", "to-none=->dir/none", "abs=->/dir", "up=->../../..",
			"clash/", "clash/sub=->/dir", "clash2/", "clash2/f/",
		}
		write(t, root, there...)
		for _, pipe := range []string{filepath.Join(local, "p"), filepath.Join(root, "pipe")} {
			if err := unix.Mkfifo(pipe, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		before := list(t, root)
		err := copied(t, files.Local().Path(filepath.Join(local)+"/"+tt.from), containerIn(t, root).Path(tt.to))
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
		want := append(slices.Clone(before), tt.want...)
		for _, line := range tt.want {
			if name, _, ok := strings.Cut(line, "="); ok {
				want = slices.DeleteFunc(want, func(l string) bool { return l == name+"=before" })
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, list(t, root)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}

// TestCopyStaysInside: links of a container do not lead out of it, whichever part of a path they are.
func TestCopyStaysInside(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	write(t, outside, "secret=s")
	root, local := t.TempDir(), t.TempDir()
	write(t, root, "abs=->"+outside, "file=->"+outside+"/secret", "up=->"+strings.Repeat("../", 20)+outside, "dir/in=->"+outside)
	write(t, local, "x=y", "d/in/x=y")
	c := containerIn(t, root)
	for _, from := range []string{"abs/secret", "file/", "up/secret", "abs/", "dir/in/secret"} {
		if err := copied(t, c.Path(from), files.Local().Path(local)); err == nil {
			t.Errorf("%s was copied", from)
		}
	}
	for _, to := range []string{"abs", "file", "up", "abs/new"} {
		_ = copied(t, files.Local().Path(filepath.Join(local, "x")), c.Path(to)) // may make a file inside
	}
	if err := copied(t, files.Local().Path(filepath.Join(local, "d")+"/."), c.Path("dir")); err == nil {
		t.Error("a link was taken for a directory")
	}
	if diff := cmp.Diff([]string{"secret=s"}, list(t, outside)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"d/", "d/in/", "d/in/x=y", "x=y"}, list(t, local)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCopyRaces: a container that replaces a directory by a link all the time neither gets nor gives anything of this
// machine.
func TestCopyRaces(t *testing.T) {
	t.Parallel()
	outside, root, local := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, outside, "x=secret")
	write(t, root, "a/b/x=mine", "link=->"+outside)
	write(t, local, "d/b/x=new")
	end := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, root+"/a/b", unix.AT_FDCWD, root+"/link", unix.RENAME_EXCHANGE)
			}
		}
	})
	c := containerIn(t, root)
	for i := range 300 {
		to := filepath.Join(local, fmt.Sprint(i))
		for _, from := range []string{"a", "a/b/x"} {
			_ = copied(t, c.Path(from), files.Local().Path(to))
			for _, name := range []string{to, to + "/b/x"} {
				if data, err := os.ReadFile(name); err == nil && strings.Contains(string(data), "secret") && !isLink(to+"/b") {
					t.Fatalf("%s has %q", name, data)
				}
			}
			_ = os.RemoveAll(to)
		}
		_ = copied(t, files.Local().Path(local+"/d/."), c.Path("a"))
		_ = copied(t, files.Local().Path(local+"/d/b/x"), c.Path("a/b/x"))
	}
	close(end)
	swaps.Wait()
	if diff := cmp.Diff([]string{"x=secret"}, list(t, outside)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func isLink(path string) bool {
	_, err := os.Readlink(path)
	return err == nil
}

// TestCopyIntoItself ends.
func TestCopyIntoItself(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "a/b/x=y")
	c := containerIn(t, root)
	for _, to := range []string{"a", "a/b", "a/new"} {
		if err := copied(t, c.Path("a"), c.Path(to)); err == nil || !strings.Contains(err.Error(), "into itself") {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// TestCopySparse: holes stay holes, and zeros become some.
func TestCopySparse(t *testing.T) {
	t.Parallel()
	local, root := t.TempDir(), t.TempDir()
	name := filepath.Join(local, "f")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 34 // takes long if it is read
	_, err = f.WriteAt([]byte("end"), size)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	var done, total int64
	o := files.Options{Progress: func(d, t int64) { done, total = d, t }}
	if err := files.Copy(t.Context(), files.Local().Path(name), containerIn(t, root).Path("f"), o); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "f"), &st); err != nil || st.Size != size+3 || st.Blocks*512 > 1<<20 {
		t.Errorf("%d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
	if done != size+3 || total != size+3 {
		t.Errorf("progress: %d of %d", done, total)
	}
}

// TestCopyInterrupted: nothing has the name of a file that is not complete, and nothing else is left.
func TestCopyInterrupted(t *testing.T) {
	t.Parallel()
	local, root := t.TempDir(), t.TempDir()
	write(t, local, "f="+strings.Repeat("x", 1<<20))
	write(t, root, "f=before")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	o := files.Options{Progress: func(int64, int64) { cancel(why) }}
	if err := files.Copy(ctx, files.Local().Path(filepath.Join(local, "f")), containerIn(t, root).Path("f"), o); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"f=before"}, list(t, root)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestCopySkips: what cannot be copied is left out and named.
func TestCopySkips(t *testing.T) {
	t.Parallel()
	local, root := t.TempDir(), t.TempDir()
	write(t, local, "d/f=x")
	if err := unix.Mkfifo(filepath.Join(local, "d/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	handle, err := os.Open(filepath.Join(local, "d")) // the path may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = handle.Close() }()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/socket", handle.Fd())}); err != nil {
		t.Fatal(err)
	}
	var skipped []string
	o := files.Options{Skipped: func(name, why string) { skipped = append(skipped, name+": "+why) }}
	if err := files.Copy(t.Context(), files.Local().Path(filepath.Join(local, "d")), containerIn(t, root).Path("/"), o); err != nil {
		t.Fatal(err)
	}
	slices.Sort(skipped)
	if diff := cmp.Diff([]string{"pipe: a named pipe", "socket: a socket"}, skipped); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for from, want := range map[string]string{"/dev/zero": "a character device cannot be copied", "/proc/self/": "a file system of the kernel cannot be copied"} {
		if err := copied(t, files.Local().Path(from), containerIn(t, root).Path("x")); err == nil || err.Error() != want {
			t.Errorf("%s: %v", from, err)
		}
	}
	if err := copied(t, files.Local().Path("/proc/self/status"), containerIn(t, root).Path("status")); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(root, "status")); err != nil || !strings.Contains(string(data), "Name:") {
		t.Errorf("a file of the kernel: %q, %v", data, err)
	}
}
