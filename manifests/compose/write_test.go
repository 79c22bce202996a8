package compose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const twoServices = `
services:
  secrets: {image: x, secrets: [pw]}
  web: {image: x}
secrets: {pw: {environment: HOME}}
`

func converts(t *testing.T, text string) []File {
	t.Helper()
	p, err := load(t, map[string]string{"compose.yaml": text}, LoadOptions{ProjectName: "p"})
	if err != nil {
		t.Fatal(err)
	}
	files, problems := Convert(p, Options{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return files
}

func TestWriteDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a/b")
	stale, err := WriteDir(dir, converts(t, twoServices))
	if err != nil || len(stale) > 0 {
		t.Fatal(stale, err)
	}
	names := func() (all []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e.Name()+" "+info.Mode().String())
		}
		return all
	}
	want := []string{"project-secrets.yaml -rw-------", "secrets.yaml -rw-r--r--", "web.yaml -rw-r--r--"}
	if diff := cmp.Diff(want, names()); diff != "" {
		t.Error(diff)
	}
	// A second conversion replaces the files, and says which are left of the first.
	stale, err = WriteDir(dir, converts(t, "services: {web: {image: other}}"))
	if diff := cmp.Diff([]string{"project-secrets.yaml", "secrets.yaml"}, stale); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
	text, err := os.ReadFile(filepath.Join(dir, "web.yaml"))
	if err != nil || !strings.HasPrefix(string(text), header) || !strings.Contains(string(text), "image: other") {
		t.Errorf("%v: %s", err, text)
	}
	// What somebody else has written stays, and nothing is written beside it.
	write(t, filepath.Join(dir, "web.yaml"), "mine\n")
	if _, err = WriteDir(dir, converts(t, "services: {app: {image: x}, web: {image: x}}")); err == nil || !strings.Contains(err.Error(), "web.yaml exists and is not from an earlier conversion") {
		t.Error(err)
	}
	if diff := cmp.Diff(want, names()); diff != "" {
		t.Error(diff)
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := Print(&b, converts(t, twoServices)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count("\n"+b.String(), "\n---\n"); n != 4 || strings.Contains(b.String(), "status") {
		t.Errorf("%d separators in\n%s", n, &b)
	}
}
