package containerd_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/volume"
)

// TestLayersInOrder: layers lie on each other in order, in whatever order they are unpacked: the last one that has a file
// counts, and what one removes of those below is gone.
func TestLayersInOrder(t *testing.T) {
	img := ociimage.Image{Ref: "localhost/layers:1", Layers: [][]ociimage.File{{
		{Path: "kept/file", Body: []byte("0")}, {Path: "emptied/file"}, {Path: "emptied/dir/file"}, {Path: "replaced/file"},
	}}}
	for i := range 8 {
		img.Layers = append(img.Layers, []ociimage.File{
			{Path: "last", Body: fmt.Append(nil, i)}, {Path: fmt.Sprint("only/", i)}, {Path: fmt.Sprint("only/.wh.", i-1)},
		})
	}
	img.Layers = append(img.Layers, []ociimage.File{{Path: "emptied/.wh..wh..opq"}, {Path: "emptied/new"}, {Path: ".wh.replaced"}},
		[]ociimage.File{{Path: "replaced", Body: []byte("file")}})
	want := map[string]string{"kept/file": "0", "last": "7", "only/7": "", "emptied/new": "", "replaced": "file"}
	var archive bytes.Buffer
	if err := ociimage.Build(&archive, img); err != nil {
		t.Fatal(err)
	}
	r := registry.Start(t, registry.Options{})
	r.Push(t, "team/layers:1", img)
	ways := map[string]func(t *testing.T, e *containerd.Engine) (ref string, err error){
		"archive": func(t *testing.T, e *containerd.Engine) (string, error) {
			_, err := e.ImportArchive(t.Context(), archiveOf(t, archive.Bytes()))
			return img.Ref, err
		},
		"registry": func(t *testing.T, e *containerd.Engine) (string, error) {
			ref := r.Host + "/team/layers:1"
			_, err := e.Pull(t.Context(), ref)
			return ref, err
		},
	}
	for _, version := range []daemon.Version{"", daemon.Current, daemon.Debian} {
		for way, get := range ways {
			t.Run(fmt.Sprintf("daemon %s, %s", version, way), func(t *testing.T) {
				e := dirsOf(t, version).openWith(t, nil)
				ref, err := get(t, e)
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				t.Cleanup(func() {
					if err := volume.UnmountBelow(volume.HostMounts{}, dir); err != nil {
						t.Error(err)
					}
				})
				if _, err := e.Image(t.Context(), ref); err != nil {
					t.Fatal(err)
				}
				if err := e.Mount(t.Context(), ref, "key", dir); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, filesOf(t, dir)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if err := e.Release(t.Context(), "key"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// filesOf returns the contents of all files below the directory.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		all[name] = string(body)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return all
}
