package manifests

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/manifests/decode"
)

// input collects what inputPaths reads as "name: content" or as the text of the problem.
func input(t *testing.T, o Options, paths ...string) []string {
	t.Helper()
	var out []string
	inputPaths(t.Context(), paths, o, func(f inputFile) {
		if f.open != nil {
			f.data, f.problems = f.open()
		}
		if len(f.problems) > 0 {
			out = append(out, string(f.problems[0].Severity)+" "+f.problems[0].String())
			return
		}
		out = append(out, f.name+": "+string(f.data))
	})
	return out
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yaml", "B", ".hidden", "x.yaml~", "x.bak", ".x.swp", "sub/c.yaml"} {
		write(t, dir, name, name)
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "gone")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	must(t, os.Symlink("a.yaml", filepath.Join(dir, "link")))
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero")))
	must(t, os.Symlink("sub", filepath.Join(dir, "sublink")))
	got := input(t, Options{}, dir)
	for i := range got {
		got[i] = strings.ReplaceAll(got[i], dir, "D")
	}
	want := []string{
		"warning D/.hidden: hidden file is not read",
		"warning D/.x.swp: hidden file is not read",
		"D/B: B",
		"D/a.yaml: a.yaml",
		"D/b.yaml: b.yaml",
		"warning D/fifo: a named pipe is not read",
		"error D/gone: is a broken symbolic link",
		"D/link: a.yaml",
		"error D/loop: is a circular symbolic link",
		"warning D/sub: directory is not read (use -R to read subdirectories)",
		"warning D/sublink: directory is not read (use -R to read subdirectories)",
		"warning D/x.bak: backup file is not read",
		"warning D/x.yaml~: backup file is not read",
		"warning D/zero: a device is not read",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRecursive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"z", "sub/c", "sub/deeper/d"} {
		write(t, dir, name, name)
	}
	must(t, os.Symlink("..", filepath.Join(dir, "sub", "up")))
	got := input(t, Options{Recursive: true}, dir)
	want := []string{
		dir + "/sub/c: sub/c", dir + "/sub/deeper/d: sub/deeper/d",
		"warning " + dir + "/sub/up: link to a directory is not followed", dir + "/z: z",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestMountedConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "..2026_01_01/web.yaml", "pod")
	must(t, os.Symlink("..2026_01_01", filepath.Join(dir, "..data")))
	must(t, os.Symlink("..data/web.yaml", filepath.Join(dir, "web.yaml")))
	if d := cmp.Diff([]string{dir + "/web.yaml: pod"}, input(t, Options{}, dir)); d != "" {
		t.Error(d)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a", "one")
	write(t, dir, "large", strings.Repeat("x", decode.MaxBytes+1))
	write(t, dir, "new\nline", "two")
	fifo := filepath.Join(dir, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o644))
	for _, tt := range []struct {
		name string
		in   string
		want string
	}{
		{"file", dir + "/a", dir + "/a: one"},
		{"backup file by its name", dir + "/new\nline", `"` + dir + `/new\nline": two`},
		{"missing", dir + "/none", "error " + dir + "/none: does not exist"},
		{"too large", dir + "/large", "error " + dir + "/large: larger than 10 MiB"},
		{"named pipe", fifo, "error " + fifo + ": is a named pipe, not a file or directory (pass it on standard input, with - as the path)"},
		{"standard input", "-", "<stdin>: in"},
		{"not a directory", dir + "/a/b", "error " + dir + "/a/b: stat: not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff([]string{tt.want}, input(t, Options{Stdin: strings.NewReader("in")}, tt.in)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestEndlessStandardInput(t *testing.T) {
	t.Parallel()
	got := input(t, Options{Stdin: endless{}}, "-")
	if d := cmp.Diff([]string{"error <stdin>: larger than 10 MiB"}, got); d != "" {
		t.Error(d)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestURL(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pod":
			_, _ = w.Write([]byte("pod"))
		case "/large":
			_, _ = w.Write(make([]byte, decode.MaxBytes+1))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	const sum = "bfcb0f9abbc94b36dfc9e6a2f9ed8eebab1f01d67ca1b95c1a1ae2ac2e1f4fdd"
	for _, tt := range []struct {
		name string
		path string
		sum  string
		want string
	}{
		{"fetched", "/pod", "", s.URL + "/pod: pod"},
		{"missing", "/none", "", "error " + s.URL + "/none: the server responded with 404 Not Found"},
		{"too large", "/large", "", "error " + s.URL + "/large: larger than 10 MiB"},
		{"other digest", "/pod", sum, "error " + s.URL + "/pod: has sha256 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := input(t, Options{SHA256: tt.sum}, s.URL+tt.path)
			if len(got) != 1 || !strings.HasPrefix(got[0], tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDigestPinsOneURL(t *testing.T) {
	t.Parallel()
	got := input(t, Options{SHA256: "ab"}, "http://a", "http://b")
	if d := cmp.Diff([]string{"error sha256 ab: is the digest of one URL, but 2 are given"}, got); d != "" {
		t.Error(d)
	}
}

// transport answers requests from a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestURLIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		client := &http.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			calls++
			if calls < 3 {
				return nil, errors.New("connection refused")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})}
		start := time.Now()
		got := input(t, Options{client: client}, "http://user:secret@host/pod?x=1")
		if d := cmp.Diff([]string{"http://user:xxxxx@host/pod?...: "}, got); d != "" {
			t.Error(d)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %s, want the pauses 1 s and 2 s", took)
		}
	})
}

func TestURLGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		})}
		got := input(t, Options{client: client}, "http://host/pod")
		if d := cmp.Diff([]string{"error http://host/pod: context deadline exceeded"}, got); d != "" {
			t.Error(d)
		}
	})
}
