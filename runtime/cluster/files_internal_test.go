package cluster

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/files"
)

// pathIn returns a path in a container, of which the root directory is root, with a tar of this machine.
func pathIn(t *testing.T, tar []string, root, name string) *Path {
	t.Helper()
	return &Path{name, func(ctx context.Context, command []string, s engine.Streams) (int32, error) {
		args := slices.Concat(tar, command[1:])
		at := slices.Index(args, "-C") + 1
		args[at] = root + args[at]
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Stdin, s.Stdout, s.Stderr
		cmd.Env = []string{"LC_ALL=C"}
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return int32(exit.ExitCode()), nil
		}
		return 0, err
	}}
}

func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name := strings.TrimPrefix(path, dir+"/"); err == nil && !d.IsDir() {
			data, err := os.ReadFile(path)
			if d.Type() == fs.ModeSymlink {
				to, _ := os.Readlink(path)
				data, err = []byte("->"+to), nil
			}
			all = append(all, name+"="+string(data))
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFilePath: copies with tar go to where all others go.
func TestFilePath(t *testing.T) {
	t.Parallel()
	tars := map[string][]string{}
	for name, tar := range map[string][]string{"tar": {"tar"}, "busybox": {"busybox", "tar"}, "bsdtar": {"bsdtar"}} {
		if _, err := exec.LookPath(tar[0]); err == nil {
			tars[name] = tar
		}
	}
	if len(tars) == 0 {
		t.Skip("no tar")
	}
	for name, tar := range tars {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range []struct {
				from, to string
				want     []string // besides what was there
				err      string
			}{
				{from: "f", to: "new", want: []string{"new=text"}},
				{from: "f", to: "/old", want: []string{"old=text"}},
				{from: "f", to: "dir", want: []string{"dir/f=text"}},
				{from: "f", to: "dir/", want: []string{"dir/f=text"}},
				{from: "f", to: "to-dir", want: []string{"dir/f=text"}},
				{from: "f", to: "dir/-x", want: []string{"dir/-x=text"}},
				{from: "d", to: "new", want: []string{"new/link=->sub/x", "new/sub/x=y"}},
				{from: "d", to: "dir", want: []string{"dir/d/link=->sub/x", "dir/d/sub/x=y"}},
				{from: "d/.", to: "dir", want: []string{"dir/link=->sub/x", "dir/sub/x=y"}},
				{from: "d/.", to: "new", want: []string{"new/link=->sub/x", "new/sub/x=y"}},
				{from: "d/link", to: "new", want: []string{"new=->sub/x"}},
				{from: "f", to: "none/new", err: "o such file or directory"},
				{from: "f", to: "none/", err: "does not exist"},
				{from: "d", to: "old", err: "cannot overwrite a file with a directory"},
				{from: "none", to: "dir", err: "o such file or directory"},
			} {
				local, root, back := t.TempDir(), t.TempDir(), t.TempDir()
				for name, content := range map[string]string{"f": "text", "d/sub/x": "y"} {
					_ = os.MkdirAll(filepath.Dir(filepath.Join(local, name)), 0o755)
					if err := os.WriteFile(filepath.Join(local, name), []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(os.Symlink("sub/x", local+"/d/link"), os.Mkdir(root+"/dir", 0o755), os.Symlink("dir", root+"/to-dir"), os.WriteFile(root+"/old", []byte("before"), 0o600)); err != nil {
					t.Fatal(err)
				}
				before := tree(t, root)
				to := func(name string) *Path { return pathIn(t, tar, root, name) }
				err := files.Copy(t.Context(), files.Local().Path(local+"/"+tt.from), to(tt.to), files.Options{})
				if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%s to %s: %v, want %q", tt.from, tt.to, err, tt.err)
				}
				want := slices.Concat(before, tt.want)
				for _, line := range tt.want {
					want = slices.DeleteFunc(want, func(l string) bool { return l == strings.Split(line, "=")[0]+"=before" })
				}
				slices.Sort(want)
				got := tree(t, root)
				if slices.Sort(got); tt.err == "" && !cmp.Equal(want, got) {
					t.Errorf("%s to %s: -want +got:\n%s", tt.from, tt.to, cmp.Diff(want, got))
				}
				for _, path := range []string{".", "/", "dir/..", ""} {
					if err := files.Copy(t.Context(), to(path), files.Local().Path(back), files.Options{}); err != nil && path != "" {
						t.Errorf("%q back: %v", path, err)
					}
				}
				again := tree(t, back)
				if slices.Sort(again); !cmp.Equal(got, again) {
					t.Errorf("%s to %s and back: -want +got:\n%s", tt.from, tt.to, cmp.Diff(got, again))
				}
			}
		})
	}
}

// TestFilePathBack: what is named is copied back, and what is not there is an error.
func TestFilePathBack(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip("no tar")
	}
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(root+"/a/b", 0o755), os.WriteFile(root+"/a/b/f", bytes.Repeat([]byte("x"), 3<<20), 0o600), os.Symlink("b", root+"/a/l")); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string][]string{
		"a/b/f": {"f"}, "/a/b": {"b/f"}, "a/l/": {"l/f"}, "a/l": {"l"}, "a/b/.": {"f"}, "a/b/../b/f": {"f"}, "a/none": nil, "none/x": nil,
	} {
		dir := t.TempDir()
		err := files.Copy(t.Context(), pathIn(t, []string{"tar"}, root, from), files.Local().Path(dir), files.Options{})
		if (err == nil) != (want != nil) {
			t.Errorf("%s: %v", from, err)
		}
		var got []string
		for _, line := range tree(t, dir) {
			if name, _, _ := strings.Cut(line, "="); name != "" {
				got = append(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", from, diff)
		}
	}
}

// TestFilePathWithoutTar: an image without tar is named as the reason, whichever way a runtime says that.
func TestFilePathWithoutTar(t *testing.T) {
	t.Parallel()
	for name, exec := range map[string]func(context.Context, []string, engine.Streams) (int32, error){
		"a code": func(context.Context, []string, engine.Streams) (int32, error) { return 127, nil },
		"a message": func(context.Context, []string, engine.Streams) (int32, error) {
			return 0, errors.New(`exec: "tar": executable file not found in $PATH`)
		},
	} {
		p := &Path{"x", exec}
		for way, err := range map[string]error{
			"from": files.Copy(t.Context(), p, files.Local().Path(t.TempDir()), files.Options{}),
			"to":   files.Copy(t.Context(), files.Local().Path("."), p, files.Options{}),
		} {
			if !errors.Is(err, ErrNoTar) {
				t.Errorf("%s: %s: %v", name, way, err)
			}
		}
	}
	full := func(ctx context.Context, command []string, s engine.Streams) (int32, error) {
		if s.Stdin == nil {
			return pathIn(t, []string{"tar"}, t.TempDir(), "").exec(ctx, command, s)
		}
		_, err := s.Stderr.Write([]byte("tar: x: Cannot write: No space left on device\n"))
		return 2, err
	}
	if err := files.Copy(t.Context(), files.Local().Path("."), &Path{"/", full}, files.Options{}); err == nil || strings.Count(err.Error(), "No space left") != 1 {
		t.Errorf("a full disk: %v", err)
	}
}
