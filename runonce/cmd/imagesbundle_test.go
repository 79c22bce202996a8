package cmd_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runtime/image"
)

// smallArchive writes an archive of an image with one small file.
func smallArchive(t *testing.T, dir, ref string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, strings.NewReplacer("/", "-", ":", "-").Replace(ref)+".tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := ociimage.Build(f, ociimage.Image{Ref: ref, Files: []ociimage.File{{Path: "a", Body: []byte(ref)}}}); err != nil {
		t.Fatal(err)
	}
}

// TestBundle: a bundle of images from archives has all of them, and the same bytes each time.
func TestBundle(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	archives, out := t.TempDir(), t.TempDir()
	for _, ref := range []string{"localhost/a:1", "localhost/b:1", "localhost/unused:1"} {
		smallArchive(t, archives, ref)
	}
	pods := imagePod(t, "web", [4]string{"localhost/a:1", "localhost/b:1", "localhost/a:1", "localhost/b:1"})
	bundle := func(file string, flags ...string) invocation {
		args := append([]string{"images", "bundle", pods, "--images-dir", archives}, flags...)
		if file != "" {
			args = append(args, "-o", file)
		}
		got := invokeWith(t, cmd.IO{}, args...)
		if strings.Contains(got.stderr, "level=") {
			t.Errorf("containerd's own messages: %s", got.stderr)
		}
		return got
	}
	lock := filepath.Join(out, "lock")
	var files [3][]byte
	for i, flags := range [][]string{nil, nil, {"--lock", lock}} {
		file := filepath.Join(out, "bundle.tar.zst")
		if got := bundle(file, flags...); got.code != 0 || strings.Count(got.stdout, " sha256:") != 2 {
			t.Fatalf("%+v", got)
		}
		var err error
		if files[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(files[0], files[i]) {
			t.Errorf("bundle %d has other bytes", i)
		}
	}
	found, unknown, err := image.Archives(filepath.Join(out, "bundle.tar.zst"))
	if err != nil || len(found) != 1 || len(unknown) > 0 {
		t.Fatal(found, unknown, err)
	}
	refs, _, err := found[0].Refs()
	if err != nil || len(refs) != 2 || refs["localhost/a:1"] == "" || refs["localhost/b:1"] == "" {
		t.Errorf("%v, %v", refs, err)
	}
	text, err := os.ReadFile(lock)
	if err != nil || !strings.Contains(string(text), "localhost/b:1: "+refs["localhost/b:1"]) {
		t.Errorf("lock %s, %v", text, err)
	}
	plain := filepath.Join(out, "plain.tar")
	if got := bundle(plain, "--platform", "linux/"+runtime.GOARCH); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if data, err := os.ReadFile(plain); err != nil || !bytes.HasPrefix(data, []byte("blobs/")) {
		t.Errorf("%v", err)
	}
	for _, tt := range []struct {
		file, want string
		args       []string
	}{
		{"", "no FILE given", nil},
		{".", "no FILE given", nil},
		{"x.tar", "pods run on linux only", []string{"--platform", "windows/amd64"}},
		{"x.tar", `platform "a/b/c/d/e"`, []string{"--platform", "a/b/c/d/e"}},
		{"x.tar", "localhost-a-1.tar: it is for linux/" + runtime.GOARCH + ", not for linux/s390x", []string{"--platform", "linux/s390x"}},
		{"no/x.tar", "--output-file: ", nil},
		{"x.tar", "no image archive or OCI layout", []string{"--images-dir", t.TempDir()}},
	} {
		file := tt.file
		if file != "" {
			file = filepath.Join(out, file)
		}
		if got := bundle(file, tt.args...); got.code != 2 || !strings.Contains(got.stderr, tt.want) {
			t.Errorf("%v: %+v", tt.args, got)
		}
		if _, err := os.Stat(filepath.Join(out, "x.tar")); err == nil {
			t.Errorf("%v: there is a file", tt.args)
		}
	}
	for _, dir := range []string{out, os.Getenv("TMPDIR")} {
		if left, err := filepath.Glob(filepath.Join(dir, "*tmp")); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestBundleWithoutImage: what the registry does not have is an error, and there is no bundle.
func TestBundleWithoutImage(t *testing.T) {
	t.Parallel()
	registry := httptest.NewServer(http.NotFoundHandler())
	defer registry.Close()
	ref := strings.TrimPrefix(registry.URL, "http://") + "/none:1"
	pods, dir := imagePod(t, "web", [4]string{ref, ref, ref, ref}), t.TempDir()
	for flag, code := range map[string]int{"-q": 1, "--lock=" + filepath.Join(dir, "lock"): 2} {
		got := invokeWith(t, cmd.IO{}, "images", "bundle", pods, "-o", filepath.Join(dir, "bundle.tar"), flag)
		if got.code != code || !strings.Contains(got.stderr, ref) || !strings.Contains(got.stderr, "404 Not Found") && !strings.Contains(got.stderr, "does not have it") {
			t.Errorf("%s: %+v", flag, got)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// twoPlatforms are an image for amd64 and for arm64. The file of each has its name.
func twoPlatforms() []ociimage.Image {
	var all []ociimage.Image
	for _, arch := range []string{"amd64", "arm64"} {
		all = append(all, ociimage.Image{
			Architecture: arch, Compression: ociimage.None, Files: []ociimage.File{{Path: "a", Body: []byte("file of " + arch)}},
		})
	}
	return all
}

// TestBundlePlatform: of an image for several platforms only one is in the bundle, under the digest
// of the whole.
func TestBundlePlatform(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	var b bytes.Buffer
	if err := ociimage.BuildIndex(&b, "localhost/both:1", twoPlatforms()...); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(dir, "both.tar")
	if err := os.WriteFile(source, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	const both = "localhost/both:1"
	checkPlatforms(t, dir, source, both, "--images-dir", source)
}

// checkPlatforms bundles an image of twoPlatforms for each of them.
func checkPlatforms(t *testing.T, dir, source, ref string, flags ...string) {
	t.Helper()
	pods := imagePod(t, "both", [4]string{ref, ref, ref, ref})
	refs := func(path string) map[string]string {
		found, _, err := image.Archives(path)
		if err != nil {
			t.Fatal(err)
		}
		refs, _, err := found[0].Refs()
		if err != nil {
			t.Fatal(err)
		}
		return refs
	}
	for _, arch := range []string{"amd64", "arm64"} {
		file := filepath.Join(dir, arch+".tar")
		args := append([]string{"images", "bundle", pods, "--platform", "linux/" + arch, "-o", file}, flags...)
		if got := invokeWith(t, cmd.IO{}, args...); got.code != 0 {
			t.Fatalf("%+v", got)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"amd64", "arm64"} {
			if bytes.Contains(data, []byte("file of "+other)) != (other == arch) {
				t.Errorf("the bundle for %s has or lacks the layer for %s", arch, other)
			}
		}
		if got, want := refs(file)[ref], refs(source)[ref]; want == "" || got != want {
			t.Errorf("digest %s, want %s", got, want)
		}
	}
}
