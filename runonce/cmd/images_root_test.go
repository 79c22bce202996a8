package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/hack/ociimage"
	"github.com/runonce/runonce/hack/roottest"
	"github.com/runonce/runonce/hack/testimages"
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
