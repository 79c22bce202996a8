package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestImageLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "images.lock")
	l, err := ReadImageLock(path)
	if err != nil || len(l.Images) != 0 {
		t.Fatal(l, err)
	}
	l.Images["registry.example:5000/y:1"] = imageDigest[1:]
	l.Images["docker.io/library/x:1"] = imageDigest[1:]
	if err := l.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadImageLock(path)
	if diff := cmp.Diff(l, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	text, err := os.ReadFile(path)
	want := "apiVersion: runonce/v1\nkind: ImageLock\nimages:\n  docker.io/library/x:1: " + imageDigest[1:] +
		"\n  registry.example:5000/y:1: " + imageDigest[1:] + "\n"
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

func TestImageLockRefuses(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: runonce/v1\nkind: ImageLock\nimages:\n"
	for _, tt := range []struct{ name, in, want string }{
		{"no YAML", "apiVersion: [", ":1:"},
		{"empty", "", ":1: has 0 documents"},
		{"two", head + "---\n" + head, ":1: has 2 documents"},
		{"kind", "apiVersion: v1\nkind: Pod\nimages: {}\n", `:2: kind: is "Pod" of "v1", want "ImageLock" of "runonce/v1"`},
		{"unknown field", head + "  {}\nimage: {}\n", ":5: image: unknown field"},
		{"short name", head + "  x: " + imageDigest[1:] + "\n", `:4: images[x]: "x" is not a full reference with a tag (write docker.io/library/x:latest)`},
		{"digest as a name", head + "  docker.io/library/x" + imageDigest + ": " + imageDigest[1:] + "\n", ":4: images[docker.io/library/x"},
		{"no reference", head + "  A B: " + imageDigest[1:] + "\n", ":4: images[A B]: \"A B\" is not an image reference"},
		{"no digest", head + "  docker.io/library/x:1: sha256:12\n", `:4: images[docker.io/library/x:1]: "sha256:12" is not a digest`},
		{"number", head + "  docker.io/library/x:1: 12\n", ":4: images[docker.io/library/x:1]: got a number"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lock")
			if err := os.WriteFile(path, []byte(tt.in), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadImageLock(path); err == nil || !strings.HasPrefix(err.Error(), path+tt.want) {
				t.Errorf("error %v, want %s%s", err, path, tt.want)
			}
		})
	}
}
