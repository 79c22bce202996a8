package manifests

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/podspec"
)

const originPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {runonce/path: /else/where}}\nspec: {containers: [{name: c, image: i}]}\n"

// TestPathAnnotation: a pod has the absolute path of its file, which is not part of its UID.
func TestPathAnnotation(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"a.yaml", "sub/a.yaml", "o\td.yaml"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(originPod), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub", "link"); err != nil {
		t.Fatal(err)
	}
	got, uids := map[string]string{}, map[string]bool{}
	for _, p := range []string{"a.yaml", "./a.yaml", dir + "/a.yaml", "sub", "link/", "o\td.yaml", "-"} {
		set, err := ReadPaths(t.Context(), []string{p}, Options{Stdin: strings.NewReader(originPod)})
		if err != nil {
			t.Fatal(err)
		}
		got[p] = set.Pods[0].Annotations[podspec.AnnotationPath]
		uids[string(set.Pods[0].UID)] = true
	}
	want := map[string]string{
		"a.yaml": dir + "/a.yaml", "./a.yaml": dir + "/a.yaml", dir + "/a.yaml": dir + "/a.yaml", "sub": dir + "/sub/a.yaml",
		"link/": dir + "/link/a.yaml", "o\td.yaml": dir + "/o\td.yaml", "-": "-",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(uids) != 1 {
		t.Errorf("%d UIDs", len(uids))
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for p, want := range map[string]string{
		"-": "-", "/dev/stdin": "-", "/dev/fd/63": "-", "/a/../b/": "/b", "": "",
		"https://user:secret@example.com/pod.yaml?token=x": "https://user:xxxxx@example.com/pod.yaml?...",
	} {
		if got := Origin(p); got != want {
			t.Errorf("%q: %q, want %q", p, got, want)
		}
	}
}

// TestBlockedRead: an input that never ends does not outlast the context.
func TestBlockedRead(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	written := make(chan struct{})
	go func() {
		_, _ = w.Write([]byte("kind: Pod\n")) // the read has begun
		cancel(errors.New("interrupted"))
		close(written)
	}()
	_, err := ReadPaths(ctx, []string{"-"}, Options{Stdin: r})
	<-written
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v", err)
	}
}
