package ociimage_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/internal/testing/ociimage"
)

type entry struct {
	header *tar.Header
	body   []byte
}

func entries(t *testing.T, r io.Reader) (map[string]entry, []string) {
	t.Helper()
	m, order := map[string]entry{}, []string{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return m, order
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		m[h.Name], order = entry{h, b}, append(order, h.Name)
	}
}

func decode[T any](t *testing.T, b []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unpack(t *testing.T, mediaType string, b []byte) []byte {
	t.Helper()
	var r io.Reader = bytes.NewReader(b)
	var err error
	switch mediaType {
	case v1.MediaTypeImageLayerGzip:
		r, err = gzip.NewReader(r)
	case v1.MediaTypeImageLayerZstd:
		r, err = zstd.NewReader(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestBuild(t *testing.T) {
	t.Parallel()
	for _, c := range []ociimage.Compression{"", ociimage.Gzip, ociimage.Zstd, ociimage.None} {
		t.Run("compression "+string(c), func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			img := ociimage.Image{
				Ref:         "localhost/x:1",
				Compression: c,
				Files: []ociimage.File{
					{Path: "/bin/x", Mode: 0o755, Body: []byte("program")},
					{Path: "bin/y", Mode: fs.ModeSymlink | 0o777, Link: "x"},
					{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
					{Path: "/home/app/f", UID: 7, GID: 8, Body: []byte("f")},
				},
				Config: v1.ImageConfig{User: "app", Entrypoint: []string{"/bin/x"}, StopSignal: "SIGINT"},
			}
			if err := ociimage.Build(&out, img); err != nil {
				t.Fatal(err)
			}
			files, _ := entries(t, &out)
			blob := func(d v1.Descriptor) []byte {
				b := files["blobs/sha256/"+d.Digest.Encoded()].body
				if digest.FromBytes(b) != d.Digest || int64(len(b)) != d.Size {
					t.Fatalf("blob %s has other bytes", d.Digest)
				}
				return b
			}
			index := decode[v1.Index](t, files["index.json"].body)
			if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != img.Ref {
				t.Errorf("name = %q, want %q", got, img.Ref)
			}
			manifest := decode[v1.Manifest](t, blob(index.Manifests[0]))
			config := decode[v1.Image](t, blob(manifest.Config))
			if diff := cmp.Diff(img.Config, config.Config); diff != "" {
				t.Error(diff)
			}
			raw := unpack(t, manifest.Layers[0].MediaType, blob(manifest.Layers[0]))
			if digest.FromBytes(raw) != config.RootFS.DiffIDs[0] {
				t.Error("the layer's digest is not the configuration's diff ID")
			}
			inside, order := entries(t, bytes.NewReader(raw))
			want := []string{"bin/", "bin/x", "bin/y", "tmp/", "home/", "home/app/", "home/app/f"}
			if diff := cmp.Diff(want, order); diff != "" {
				t.Error(diff)
			}
			if h := inside["tmp/"].header; h.Mode != 0o1777 {
				t.Errorf("mode of /tmp = %o", h.Mode)
			}
			if h := inside["home/app/f"].header; h.Uid != 7 || h.Gid != 8 || h.Mode != 0o644 {
				t.Errorf("header of /home/app/f = %+v", h)
			}
			if h := inside["bin/y"].header; h.Typeflag != tar.TypeSymlink || h.Linkname != "x" {
				t.Errorf("header of /bin/y = %+v", h)
			}
		})
	}
}

func TestBuildIsReproducible(t *testing.T) {
	t.Parallel()
	img := ociimage.Image{Ref: "localhost/x:1", Layers: [][]ociimage.File{{{Path: "a"}}, {{Path: "b"}}}}
	var one, two bytes.Buffer
	if err := errors.Join(ociimage.Build(&one, img), ociimage.Build(&two, img)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two builds differ")
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   ociimage.Image
	}{
		{"a device", ociimage.Image{Files: []ociimage.File{{Path: "d", Mode: fs.ModeDevice}}}},
		{"an unknown compression", ociimage.Image{Compression: "lzw", Files: []ociimage.File{{Path: "a"}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := ociimage.Build(io.Discard, tt.in); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestBuildDocker(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	img := ociimage.Image{
		Ref:    "localhost/x:1",
		Layers: [][]ociimage.File{{{Path: "a", Body: []byte("a")}}, {{Path: "b"}}},
		Config: v1.ImageConfig{Cmd: []string{"/a"}},
	}
	if err := ociimage.BuildDocker(&out, img); err != nil {
		t.Fatal(err)
	}
	files, _ := entries(t, &out)
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	m := decode[[]entry](t, files["manifest.json"].body)[0]
	if diff := cmp.Diff([]string{img.Ref}, m.RepoTags); diff != "" {
		t.Error(diff)
	}
	config := decode[v1.Image](t, files[m.Config].body)
	if diff := cmp.Diff(img.Config, config.Config); diff != "" {
		t.Error(diff)
	}
	for i, l := range m.Layers {
		if digest.FromBytes(files[l].body) != config.RootFS.DiffIDs[i] {
			t.Errorf("layer %d is not the configuration's", i)
		}
	}
	if len(m.Layers) != 2 {
		t.Errorf("%d layers, want 2", len(m.Layers))
	}
}
