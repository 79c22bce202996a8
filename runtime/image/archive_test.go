package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// member is a file of an archive.
type member struct{ name, text string }

func tarOf(t *testing.T, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, m.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstandard(t *testing.T, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeMembers writes the files of an OCI layout directory.
func writeMembers(t *testing.T, dir string, members ...member) {
	t.Helper()
	for _, m := range members {
		write(t, filepath.Join(dir, m.name), []byte(m.text))
	}
}

// digest is that of blob.
func digest() string { return "sha256:" + strings.Repeat("a", 64) }

func index(annotations string) member {
	return member{"index.json", `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` +
		digest() + `","size":2,"annotations":{` + annotations + `}}]}`}
}

func layout() member { return member{"oci-layout", `{"imageLayoutVersion":"1.0.0"}`} }

func blob() member { return member{"blobs/sha256/" + strings.Repeat("a", 64), "{}"} }

func TestArchives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := tarOf(t, layout(), index(`"org.opencontainers.image.ref.name":"x:1"`), blob())
	write(t, filepath.Join(dir, "a.tar"), plain)
	write(t, filepath.Join(dir, "b.tar.gz"), gzipped(t, plain))
	write(t, filepath.Join(dir, "c.tar"), zstandard(t, plain))
	write(t, filepath.Join(dir, "d"), append([]byte{0x52, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'}, zstandard(t, plain)...))
	writeMembers(t, filepath.Join(dir, "e"), layout(), index(`"org.opencontainers.image.ref.name":"x:1"`), blob())
	write(t, filepath.Join(dir, ".hidden"), []byte("x"))
	write(t, filepath.Join(dir, "y-README"), []byte("hello"))
	write(t, filepath.Join(dir, "y-empty.tar"), nil)
	write(t, filepath.Join(dir, "y-torn.tar.gz"), gzipped(t, plain)[:9])
	writeMembers(t, filepath.Join(dir, "z-dir"), blob())
	if err := syscall.Mkfifo(filepath.Join(dir, "z-fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "z-link")); err != nil {
		t.Fatal(err)
	}
	found, unknown, err := Archives(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(found))
	for _, a := range found {
		names = append(names, filepath.Base(a.Path))
		refs, _, err := a.Refs()
		if err != nil {
			t.Errorf("%s: %v", a.Path, err)
		}
		if diff := cmp.Diff(map[string]string{"docker.io/library/x:1": digest()}, refs); diff != "" {
			t.Errorf("%s: %s", a.Path, diff)
		}
		if diff := cmp.Diff(tarNames(t, plain), openNames(t, a)); diff != "" {
			t.Errorf("%s: %s", a.Path, diff)
		}
	}
	if diff := cmp.Diff([]string{"a.tar", "b.tar.gz", "c.tar", "d", "e"}, names); diff != "" {
		t.Error(diff)
	}
	wantUnknown := []string{"y-README", "y-empty.tar", "y-torn.tar.gz", "z-dir", "z-fifo", "z-link"}
	if len(unknown) != len(wantUnknown) {
		t.Fatalf("unknown: %q, want %q", unknown, wantUnknown)
	}
	for i, name := range wantUnknown {
		if !strings.Contains(unknown[i].Error(), filepath.Join(dir, name)) {
			t.Errorf("unknown: %q, want it to name %s", unknown[i], name)
		}
	}
}

func tarNames(t *testing.T, data []byte) []string {
	t.Helper()
	return namesIn(t, bytes.NewReader(data))
}

func openNames(t *testing.T, a Archive) []string {
	t.Helper()
	r, err := a.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	return namesIn(t, r)
}

func namesIn(t *testing.T, r io.Reader) []string {
	t.Helper()
	var names []string
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

func TestArchivesWithoutDirectory(t *testing.T) {
	t.Parallel()
	if _, _, err := Archives(filepath.Join(t.TempDir(), "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

func TestRefs(t *testing.T) {
	t.Parallel()
	hex := strings.Repeat("b", 64)
	docker := func(config, tags string) member {
		return member{"manifest.json", `[{"Config":"` + config + `","RepoTags":[` + tags + `],"Layers":[]}]`}
	}
	for _, tt := range []struct {
		name string
		in   []member
		want map[string]string
	}{
		{"full name", []member{layout(), index(`"org.opencontainers.image.ref.name":"registry.example/x:1"`)}, map[string]string{"registry.example/x:1": digest()}},
		{"mere tag", []member{layout(), index(`"org.opencontainers.image.ref.name":"1.2"`)}, map[string]string{"docker.io/library/tool:1.2": digest()}},
		{
			"containerd's name first",
			[]member{layout(), index(`"org.opencontainers.image.ref.name":"1","io.containerd.image.name":"docker.io/library/y:1"`)},
			map[string]string{"docker.io/library/y:1": digest()},
		},
		{"index before layout", []member{index(`"io.containerd.image.name":"docker.io/library/y:1"`), layout()}, map[string]string{"docker.io/library/y:1": digest()}},
		{"dots before names", []member{{"./oci-layout", "{}"}, {"./index.json", index(`"io.containerd.image.name":"docker.io/library/y:1"`).text}}, map[string]string{"docker.io/library/y:1": digest()}},
		{"docker", []member{blob(), docker(hex+".json", `"x:1","y"`)}, map[string]string{"docker.io/library/x:1": "sha256:" + hex, "docker.io/library/y:latest": "sha256:" + hex}},
		{"docker, blobs", []member{docker("blobs/sha256/"+hex, `"x:1"`)}, map[string]string{"docker.io/library/x:1": "sha256:" + hex}},
		{"docker, kaniko", []member{docker("sha256:"+hex, `"x:1"`)}, map[string]string{"docker.io/library/x:1": "sha256:" + hex}},
		{"docker, no digest", []member{docker("config.json", `"x:1"`)}, map[string]string{"docker.io/library/x:1": ""}},
		{
			"docker and OCI",
			[]member{docker(hex+".json", `"x:1"`), layout(), index(`"io.containerd.image.name":"docker.io/library/y:1"`)},
			map[string]string{"docker.io/library/y:1": digest()},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "Tool.tar.gz")
			write(t, path, gzipped(t, tarOf(t, tt.in...)))
			got, unnamed, err := Archive{Path: path}.Refs()
			if err != nil || len(unnamed) > 0 {
				t.Fatal(unnamed, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRefsRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		in         []member
	}{
		{"no image", "neither oci-layout nor manifest.json", []member{{"hello", "x"}}},
		{"no index", "no index.json", []member{layout()}},
		{"no names", "image " + digest() + ` has no name: save it by its name (docker save NAME:TAG), or name it: "runonce images import --name NAME:TAG FILE"`, []member{layout(), index("")}},
		{"no names in docker's", "image config.json has no name", []member{{"manifest.json", `[{"Config":"config.json","RepoTags":null,"Layers":[]}]`}}},
		{"no images", "no image in it has a name", []member{layout(), {"index.json", `{"schemaVersion":2,"manifests":[]}`}}},
		{"bad name", "couldn't parse image name", []member{layout(), index(`"io.containerd.image.name":"A B"`)}},
		{"bad tag", `couldn't parse image name "x:a b": invalid reference format`, []member{layout(), index(`"org.opencontainers.image.ref.name":"a b"`)}},
		{"bad JSON", "index.json", []member{layout(), {"index.json", "{"}}},
		{"endless index", "larger than", []member{layout(), {"index.json", strings.Repeat(" ", maxIndex+1)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "x.tar")
			write(t, path, tarOf(t, tt.in...))
			_, _, err := Archive{Path: path}.Refs()
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with %q and the path", err, tt.want)
			}
		})
	}
}

// TestUnnamed: images without a name are told, and the one image of an archive can be given one.
func TestUnnamed(t *testing.T) {
	t.Parallel()
	const name = "docker.io/library/new:1"
	hex := strings.Repeat("b", 64)
	one := `{"Config":"` + hex + `.json","RepoTags":["x:1","y:1"],"Layers":[]}`
	nameless := `{"Config":"` + strings.Repeat("c", 64) + `.json","Layers":[]}`
	for _, tt := range []struct {
		name    string
		in      member
		refs    map[string]string
		unnamed []string
		renamed map[string]string // nil for an error
	}{
		{"one", index(""), nil, nil, map[string]string{name: digest()}},
		{"one with a name", index(`"io.containerd.image.name":"docker.io/library/y:1"`), map[string]string{"docker.io/library/y:1": digest()}, nil, map[string]string{name: digest()}},
		{
			"one with two names",
			member{"manifest.json", "[" + one + "]"},
			map[string]string{"docker.io/library/x:1": "sha256:" + hex, "docker.io/library/y:1": "sha256:" + hex},
			nil,
			map[string]string{name: "sha256:" + hex},
		},
		{
			"mixed",
			member{"manifest.json", "[" + one + "," + nameless + "]"},
			map[string]string{"docker.io/library/x:1": "sha256:" + hex, "docker.io/library/y:1": "sha256:" + hex},
			[]string{"sha256:" + strings.Repeat("c", 64)},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "x.tar")
			members := []member{tt.in}
			if tt.in.name == "index.json" {
				members = append(members, layout())
			}
			write(t, path, tarOf(t, members...))
			refs, unnamed, err := Archive{Path: path}.Refs()
			if (err == nil) != (tt.refs != nil) || cmp.Diff(tt.refs, refs) != "" || cmp.Diff(tt.unnamed, unnamed) != "" {
				t.Errorf("%v, %v, %v", refs, unnamed, err)
			}
			refs, unnamed, err = Archive{Path: path, Name: name}.Refs()
			if (err == nil) != (tt.renamed != nil) || cmp.Diff(tt.renamed, refs) != "" || len(unnamed) > 0 {
				t.Errorf("renamed: %v, %v, %v", refs, unnamed, err)
			}
		})
	}
}

func TestLayoutWithOddBlobIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeMembers(t, dir, layout(), index(""), blob())
	if err := syscall.Mkfifo(filepath.Join(dir, "blobs", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Archive{Path: dir, layout: true}.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("error %v, want it to name the file", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A reader who stops early must not leave the writer waiting: synctest would say so.
func TestLayoutReadInPart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeMembers(t, dir, layout(), index(""), blob())
	synctest.Test(t, func(t *testing.T) {
		r, err := Archive{Path: dir, layout: true}.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 10)); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestArchivesOfOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, layoutDir, text := filepath.Join(dir, "a.tar"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	write(t, file, tarOf(t, layout(), index(""), blob()))
	writeMembers(t, layoutDir, layout(), index(""), blob())
	write(t, text, []byte("hello"))
	for _, path := range []string{file, layoutDir} {
		found, unknown, err := Archives(path)
		if err != nil || len(unknown) > 0 || len(found) != 1 || found[0].Path != path {
			t.Errorf("Archives(%s) = %v, %q, %v", path, found, unknown, err)
		}
	}
	if found, unknown, err := Archives(text); err != nil || len(found) > 0 || len(unknown) != 1 || !strings.Contains(unknown[0].Error(), text) {
		t.Errorf("%v, %v, %v, want an error with the path", found, unknown, err)
	}
}

func TestOpenReturnsErrors(t *testing.T) {
	t.Parallel()
	whole := gzipped(t, tarOf(t, member{"blob", strings.Repeat("0123456789", 10000)}, layout(), index("")))
	path := filepath.Join(t.TempDir(), "x")
	write(t, path, whole[:len(whole)-20])
	r, err := Archive{Path: path}.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
	_ = r.Close()
}
