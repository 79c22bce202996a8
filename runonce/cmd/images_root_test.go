package cmd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

const dockerPod = `
apiVersion: v1
kind: Pod
metadata: {name: docker}
spec:
  restartPolicy: Never
  hostNetwork: true
  containers:
  - {name: main, image: "localhost/docker:1", imagePullPolicy: Never, args: [exit, "0", layered]}
`

// TestDockerArchive: an archive of docker save is imported and runs.
func TestDockerArchive(t *testing.T) {
	roottest.Require(t)
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	program, err := testimages.Program(t.Context(), root, "box")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "docker.tar"))
	if err != nil {
		t.Fatal(err)
	}
	err = ociimage.BuildDocker(f, ociimage.Image{
		Ref: "localhost/docker:1",
		Layers: [][]ociimage.File{
			{{Path: "bin/box", Body: []byte("replaced by the layer above"), Mode: 0o755}},
			{{Path: "bin/box", Body: program, Mode: 0o755}},
		},
		Config: v1.ImageConfig{Entrypoint: []string{"/bin/box"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, dir)
	m.once(t, "run", "--until", "completed", podDir(t, dockerPod))
	if diff := cmp.Diff("layered\n", m.once(t, "logs", "docker")); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if list := m.once(t, "images", "list"); !strings.Contains(list, "localhost/docker:1") {
		t.Errorf("images list prints\n%s", list)
	}
}

// neverPod is a pod with an image that is never pulled.
func neverPod(name, image string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  restartPolicy: Never\n  hostNetwork: true\n  containers:\n"+
		"  - {name: main, image: %q, imagePullPolicy: Never, args: [exit, \"0\"]}\n", name, image)
}

// TestBadArchives: what is bad in --images-dir only matters to the pods that need it.
func TestBadArchives(t *testing.T) {
	roottest.Require(t)
	dir := boxImages(t)
	box, err := os.ReadFile(filepath.Join(dir, "box.tar"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("README.txt", []byte("x"))
	write("torn.tar.gz", []byte{0x1f, 0x8b, 8})
	m := newMachine(t, "")
	fine, both := podDir(t, neverPod("fine", boxRef)), podDir(t, neverPod("fine", boxRef)+neverPod("gone", "localhost/gone:1"))
	run := func(want int, args ...string) string {
		return m.output(t, want, append([]string{"run", "--until", "completed", "--rerun", "--images-dir", dir}, args...)...)
	}
	for _, name := range []string{"README.txt", "torn.tar.gz"} {
		if out := run(0, fine); !strings.Contains(out, filepath.Join(dir, name)) || !strings.Contains(out, "no pod needs") {
			t.Errorf("no word on %s:\n%s", name, out)
		}
		if out := run(2, both); !strings.Contains(out, `image "localhost/gone:1" cannot be imported: `) || !strings.Contains(out, filepath.Join(dir, name)) || !strings.Contains(out, "nothing was started") {
			t.Errorf("%s is needed:\n%s", name, out)
		}
	}
	if out := run(1, "--skip-invalid", both); !strings.Contains(out, "fine  Succeeded") || !strings.Contains(out, "gone  Invalid") {
		t.Errorf("--skip-invalid:\n%s", out)
	}

	// Its index says what it has, and not all of that is there.
	write("other.tar", bytes.ReplaceAll(box, []byte("localhost/box:1"), []byte("localhost/bax:1"))[:len(box)/2])
	if out := run(0, fine); !strings.Contains(out, "other.tar") {
		t.Errorf("no word on it:\n%s", out)
	}
	if out := run(2, podDir(t, neverPod("bax", "localhost/bax:1"))); !strings.Contains(out, `image "localhost/bax:1" cannot be imported: `) || strings.Contains(out, "README") && !strings.Contains(out, "other.tar") {
		t.Errorf("it is needed:\n%s", out)
	}
	if out := m.output(t, 2, "images", "import", dir); !strings.Contains(out, "README.txt: not an image archive") {
		t.Errorf("images import:\n%s", out)
	}
}

// TestArchivesInConflict: nothing of them is imported.
func TestArchivesInConflict(t *testing.T) {
	roottest.Require(t)
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		writeImage(t, filepath.Join(dir, name+".tar"), ociimage.Image{Ref: "localhost/app:1", Files: []ociimage.File{{Path: name}}})
	}
	m := newMachine(t, "")
	if out := m.output(t, 2, "run", "--images-dir", dir, podDir(t, neverPod("app", "localhost/app:1"))); !strings.Contains(out, "a.tar and, with another digest, in ") {
		t.Error(out)
	}
	if list := m.once(t, "images", "list"); strings.Contains(list, "localhost/app:1") {
		t.Error(list)
	}
}

// TestImportName: an archive's one image gets the name that the user wants.
func TestImportName(t *testing.T) {
	roottest.Require(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "app.tar")
	writeImage(t, path, ociimage.Image{Ref: "localhost/app:1", Files: []ociimage.File{{Path: "a"}}})
	archive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	nameless := filepath.Join(dir, "nameless.tar")
	archive = bytes.ReplaceAll(bytes.ReplaceAll(archive, []byte("io.containerd.image.name"), []byte("io.containerd.image.nome")), []byte("image.ref.name"), []byte("image.ref.nome"))
	if err := os.WriteFile(nameless, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, "")
	if out := m.output(t, 2, "images", "import", nameless); !strings.Contains(out, nameless+": image sha256:") || !strings.Contains(out, `has no name: save it by its name (docker save NAME:TAG), or name it: "runonce images import --name NAME:TAG FILE"`) {
		t.Error(out)
	}
	if diff := cmp.Diff("docker.io/library/app:2 imported\n", m.once(t, "images", "import", "--name", "app:2", nameless)); diff != "" {
		t.Error(diff)
	}
	m.once(t, "images", "import", "--name", "app:3", path)
	if list := m.once(t, "images", "list"); !strings.Contains(list, "library/app:2 ") || !strings.Contains(list, "library/app:3 ") || strings.Contains(list, "localhost/app:1") {
		t.Error(list)
	}
	m.fails(t, 2, "images", "import", "--name", "app:4", dir)
	m.fails(t, 2, "images", "import", "--name", "app:4", path, nameless)
	m.fails(t, 2, "images", "import", "--name", "A B", path)
}

func writeImage(t *testing.T, path string, img ociimage.Image) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(ociimage.Build(f, img), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
