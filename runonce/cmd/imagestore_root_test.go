package cmd_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// boxProgram is the program of the test images.
func boxProgram(t *testing.T) []byte {
	t.Helper()
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	program, err := testimages.Program(t.Context(), root, "box")
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// boxImage is an image with the box program and a file of so many random bytes.
func boxImage(t *testing.T, ref string, size int) ociimage.Image {
	t.Helper()
	junk := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(junk) // never fails
	return ociimage.Image{
		Ref: ref, Config: v1.ImageConfig{Entrypoint: []string{"/bin/box"}}, Compression: ociimage.None,
		Files: []ociimage.File{{Path: "bin/box", Body: boxProgram(t), Mode: 0o755}, {Path: "junk", Body: junk}},
	}
}

type builder func(io.Writer, ociimage.Image) error

// archiveOf writes an archive and returns its bytes.
func archiveOf(t *testing.T, path string, build builder, img ociimage.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := build(&b, img); err != nil {
		t.Fatal(err)
	}
	return keep(t, path, b.Bytes())
}

// keep writes a file, compressed as its name says, and returns the plain bytes.
func keep(t *testing.T, path string, plain []byte) []byte {
	t.Helper()
	data := plain
	var b bytes.Buffer
	switch filepath.Ext(path) {
	case ".gz":
		z := gzip.NewWriter(&b)
		if _, err := z.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		data = b.Bytes()
	case ".zst":
		z, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		data = z.EncodeAll(plain, nil)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return plain
}

// bytesRead is how much this process has read.
func bytesRead(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

type listedImage struct {
	Name, Digest string
	Size         int64
	Pinned       bool
	UsedBy       []string
}

func (m machine) images(t *testing.T) map[string]listedImage {
	t.Helper()
	var document struct{ Images []listedImage }
	if err := json.Unmarshal([]byte(m.once(t, "images", "list", "-o", "json")), &document); err != nil {
		t.Fatal(err)
	}
	all := map[string]listedImage{}
	for _, i := range document.Images {
		all[i.Name] = i
	}
	return all
}

func oncePod(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  restartPolicy: Never\n  hostNetwork: true\n"+
		"  containers: [{name: main, image: %q, imagePullPolicy: Always, args: [exit, \"0\", %s]}]\n", name, image, name)
}

// TestImageStore: archives are imported once, verified and pinned; an image that is used, or came
// with an archive, stays.
func TestImageStore(t *testing.T) {
	everywhere(t, func(t *testing.T, m machine) {
		dir := t.TempDir()
		for _, a := range []struct {
			file, ref string
			build     builder
			size      int
		}{
			{"a.tar", "localhost/oci:1", ociimage.Build, 1 << 20},
			{"b.tar.gz", "localhost/docker:1", ociimage.BuildDocker, 24 << 20},
			{"c.tar.zst", "localhost/zst:1", ociimage.Build, 2 << 20},
		} {
			archiveOf(t, filepath.Join(dir, a.file), a.build, boxImage(t, a.ref, a.size))
		}
		pods := podDir(t, oncePod("one", "localhost/oci:1")+"---\n"+oncePod("two", "localhost/docker:1")+"---\n"+oncePod("three", "localhost/zst:1"))
		run := []string{"run", "--offline", "--until", "completed", "--images-dir", dir, "-o", "json", pods}
		m.once(t, run...)
		before := bytesRead(t)
		m.once(t, run...)
		if n := bytesRead(t) - before; n > 16<<20 {
			t.Errorf("the second run has read %d bytes", n)
		}
		listed := m.images(t)
		for ref, pod := range map[string]string{"localhost/oci:1": "default/one", "localhost/docker:1": "default/two"} {
			if i := listed[ref]; !i.Pinned || i.Size < 1<<20 || !cmp.Equal([]string{pod}, i.UsedBy) {
				t.Errorf("%s: %+v", ref, i)
			}
		}
		m.fails(t, 2, "images", "rm", "localhost/oci:1") // a pod uses it
		m.once(t, "down", "--images", pods)
		if _, ok := m.images(t)["localhost/oci:1"]; !ok {
			t.Error("down --images has removed a pinned image")
		}
		if out := m.once(t, "images", "prune"); out != "0.0 MB freed\n" {
			t.Errorf("prune: %s", out)
		}
		freed := func(out string) float64 {
			f := regexp.MustCompile(`(?m)^([0-9.]+) MB freed$`).FindStringSubmatch(out)
			if f == nil {
				t.Fatal(out)
			}
			n, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if out := m.once(t, "images", "rm", "localhost/docker:1"); freed(out) < 24 || !strings.Contains(out, "localhost/docker:1 removed\n") {
			t.Errorf("rm: %s", out)
		}
		if out := m.once(t, "images", "prune", "--all"); freed(out) < 1 || len(m.images(t)) > 0 {
			t.Errorf("prune --all: %s, %v", out, m.images(t))
		}
		m.once(t, run...) // imports them again
	})
}

// TestDamagedArchives: what is not whole, or no image at all, ends a run that needs it before anything starts.
func TestDamagedArchives(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	plain := archiveOf(t, filepath.Join(t.TempDir(), "x.tar"), ociimage.Build, boxImage(t, "localhost/x:1", 1<<20))
	corrupt := bytes.Clone(plain)
	corrupt[len(corrupt)/2] ^= 1
	for name, data := range map[string][]byte{
		"corrupt.tar": corrupt, "corrupt.tar.gz": corrupt, "cut.tar": plain[:len(plain)/2], "cut.tar.zst": plain[:len(plain)/2], "notes.txt": []byte("hello"),
	} {
		dir := t.TempDir()
		keep(t, filepath.Join(dir, name), data)
		out := m.fails(t, 2, "run", "-o", "json", "--images-dir", dir, podDir(t, neverPod("x", "localhost/x:1")))
		if !strings.Contains(out, filepath.Join(dir, name)) {
			t.Errorf("%s: %s", name, out)
		}
	}
	if _, ok := m.images(t)["localhost/x:1"]; ok {
		t.Error("a damaged image was imported")
	}
	if list := m.once(t, "ps"); strings.Contains(list, "default") {
		t.Errorf("started:\n%s", list)
	}
}

// TestRootImages: the archives in the root's directory images need no flag, and those of the flag count more.
// Two images of one name in one directory are an error.
func TestRootImages(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, boxImages(t))
	own := filepath.Join(m.dir, "root", "images")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	pod := podDir(t, oncePod("x", "localhost/own:1"))
	m.once(t, "ps")
	m.fails(t, 2, "plan", "--offline", pod)
	archiveOf(t, filepath.Join(own, "own.tar.zst"), ociimage.Build, boxImage(t, "localhost/own:1", 0))
	m.once(t, "run", "--offline", "--until", "completed", pod)

	before, dir := m.images(t)["localhost/own:1"].Digest, t.TempDir()
	archiveOf(t, filepath.Join(dir, "a.tar"), ociimage.Build, boxImage(t, "localhost/own:1", 1))
	m.once(t, "run", "--offline", "--images-dir", dir, pod)
	if m.images(t)["localhost/own:1"].Digest == before {
		t.Error("the image of --images-dir is not used")
	}
	archiveOf(t, filepath.Join(dir, "b.tar"), ociimage.Build, boxImage(t, "localhost/own:1", 2))
	want := `image "localhost/own:1" is in ` + filepath.Join(dir, "a.tar") + " and, with another digest, in " + filepath.Join(dir, "b.tar")
	if out := m.fails(t, 2, "run", "-o", "json", "--images-dir", dir, pod); !strings.Contains(out, strings.ReplaceAll(want, `"`, `\"`)) {
		t.Errorf("it prints\n%s", out)
	}
}
