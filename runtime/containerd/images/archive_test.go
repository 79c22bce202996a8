package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"

	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/runtime/image"
)

// edited returns an archive with each file passed through edit, which returns nil to leave it out.
func edited(t *testing.T, archive []byte, edit func(name string, body []byte) []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, r := tar.NewWriter(&out), tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if body = edit(h.Name, body); body == nil {
				continue
			}
		}
		h.Size = int64(len(body))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func archiveOf(t *testing.T, data []byte) image.Archive {
	t.Helper()
	path := filepath.Join(t.TempDir(), "Tool.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return image.Archive{Path: path}
}

// TestRead: an archive is complete or refused.
func TestRead(t *testing.T) {
	t.Parallel()
	built := ociimage.Image{
		Ref: "localhost/a:1", Layers: [][]ociimage.File{{{Path: "big", Body: bytes.Repeat([]byte("x"), 1000)}}},
		Files: []ociimage.File{{Path: "small", Body: []byte("y")}},
	}
	var plain, zipped, docker bytes.Buffer
	uncompressed := built
	uncompressed.Compression = ociimage.None
	if err := errors.Join(ociimage.Build(&plain, uncompressed), ociimage.Build(&zipped, built), ociimage.BuildDocker(&docker, built)); err != nil {
		t.Fatal(err)
	}
	// The blobs by what they hold.
	flip := func(marker string) func(string, []byte) []byte {
		return func(name string, body []byte) []byte {
			if strings.Contains(name, "/") && bytes.Contains(body, []byte(marker)) {
				body[bytes.LastIndex(body, []byte(marker))] ^= 1
			}
			return body
		}
	}
	drop := func(marker string) func(string, []byte) []byte {
		return func(name string, body []byte) []byte {
			if strings.Contains(name, "/") && bytes.Contains(body, []byte(marker)) {
				return nil
			}
			return body
		}
	}
	const gzipMagic = "\x1f\x8b\x08"
	same := func(_ string, body []byte) []byte { return body }
	for _, tc := range []struct {
		name    string
		archive []byte
		edit    func(string, []byte) []byte
		want    string // in the error; empty for none
	}{
		{"plain", plain.Bytes(), same, ""},
		{"compressed", zipped.Bytes(), same, ""},
		{"docker", docker.Bytes(), same, ""},
		{"corrupt layer", plain.Bytes(), flip("xxx"), "is missing or corrupt"},
		{"missing layer", plain.Bytes(), drop("xxx"), "is missing or corrupt"},
		{"corrupt compressed layer", zipped.Bytes(), flip(gzipMagic), "is missing or corrupt"},
		{"corrupt configuration", plain.Bytes(), flip("diff_ids"), "is missing or corrupt"},
		{"corrupt manifest", plain.Bytes(), flip(`"layers"`), "its manifest is missing or corrupt"},
		{"corrupt layer of docker", docker.Bytes(), flip("xxx"), "it is not the one that the image's configuration names"},
		{"truncated", plain.Bytes()[:len(plain.Bytes())/2], nil, "unexpected EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			store, err := local.NewStore(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			archive := tc.archive
			if tc.edit != nil {
				archive = edited(t, archive, tc.edit)
			}
			watched := &watchedStore{Store: unlabelled{store}}
			found, err := read(t.Context(), watched, archiveOf(t, archive), platforms.Default())
			if watched.trouble() != nil {
				t.Errorf("trouble with the store: %v", watched.trouble())
			}
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || found != nil {
					t.Errorf("%v, %v", found, err)
				}
				return
			}
			if err != nil || len(found) != 1 || found[0].Name != "localhost/a:1" {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
}

// TestReadNames: images get the names that Refs returns, and those without a name are left out.
func TestReadNames(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	if err := ociimage.Build(&archive, ociimage.Image{Ref: "localhost/a:1", Files: []ociimage.File{{Path: "a"}}}); err != nil {
		t.Fatal(err)
	}
	for annotations, want := range map[string]string{
		`"org.opencontainers.image.ref.name":"1.2"`:                                           "docker.io/library/tool:1.2",
		`"org.opencontainers.image.ref.name":"me/x:1"`:                                        "docker.io/me/x:1",
		`"io.containerd.image.name":"registry.example/x:1","org.opencontainers.ref.name":"1"`: "registry.example/x:1",
		`"a":"b"`: "no image in it has a name",
		`"org.opencontainers.image.ref.name":"a b"`: `couldn't parse image name "tool:a b"`,
	} {
		a := archiveOf(t, edited(t, archive.Bytes(), func(name string, body []byte) []byte {
			if name == "index.json" {
				return regexp.MustCompile(`"annotations":\{[^}]*\}`).ReplaceAll(body, []byte(`"annotations":{`+annotations+`}`))
			}
			return body
		}))
		store, err := local.NewStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		named, err := read(t.Context(), unlabelled{store}, a, platforms.Default())
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", annotations, err)
			}
			continue
		}
		if len(named) != 1 || named[0].Name != want {
			t.Errorf("%s: %v, want %s", annotations, named, want)
		}
		if refs, _, err := a.Refs(); err != nil || refs[want] != named[0].Target.Digest.String() {
			t.Errorf("%s: Refs returns %v, %v", annotations, refs, err)
		}
	}
}

// full is a store on a full disk.
type full struct{ content.Store }

func (s full) Writer(ctx context.Context, o ...content.WriterOpt) (content.Writer, error) {
	w, err := s.Store.Writer(ctx, o...)
	return fullWriter{w}, err
}

type fullWriter struct{ content.Writer }

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestTroubleWithTheStore: what is wrong with the store is not the archive's error.
func TestTroubleWithTheStore(t *testing.T) {
	t.Parallel()
	store, err := local.NewStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := ociimage.Build(&archive, ociimage.Image{Ref: "localhost/a:1", Files: []ociimage.File{{Path: "a"}}}); err != nil {
		t.Fatal(err)
	}
	watched := &watchedStore{Store: full{store}}
	_, err = read(t.Context(), watched, archiveOf(t, archive.Bytes()), platforms.Default())
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(watched.trouble(), syscall.ENOSPC) {
		t.Errorf("%v, %v", err, watched.trouble())
	}
}
