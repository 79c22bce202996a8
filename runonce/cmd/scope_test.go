package cmd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runonce/cmd"
)

// TestPlanPrune: plan shows what run --prune would stop.
func TestPlanPrune(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	dir := t.TempDir()
	for name, from := range map[string]string{"web.yaml": "web", "gone.yaml": "gone", "sub/below.yaml": "below"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(manifest(t, from, "Always", "[sleep]"), path); err != nil {
			t.Fatal(err)
		}
	}
	if got := invoke(t, m, "run", "-R", dir, manifest(t, "other", "Always", "[sleep]"), "--node", nodeFile(), "--settle", "0"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if err := os.RemoveAll(filepath.Join(dir, "gone.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "sub", "below.yaml"), filepath.Join(dir, "sub", ".below")); err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^(\w+) +Admitted +(\w+)`)
	for _, c := range []struct {
		flags []string
		want  map[string]string
	}{
		{nil, map[string]string{"web": "keep"}},
		{[]string{"--prune"}, map[string]string{"web": "keep", "gone": "prune"}},
		{[]string{"--prune", "-R"}, map[string]string{"web": "keep", "gone": "prune", "below": "prune"}},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"runonce", "plan", dir, "--root", m.root, "--state", filepath.Join(m.root, "state")}, c.flags...)
		code := cmd.Main(t.Context(), args, cmd.IO{
			Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }, Machine: os.DirFS("/"), Open: m.open,
		})
		got := map[string]string{}
		for _, r := range row.FindAllStringSubmatch(out.String(), -1) {
			got[r[1]] = r[2]
		}
		if diff := cmp.Diff(c.want, got); diff != "" || code != 0 {
			t.Errorf("%q: exit code %d, actions (-want +got):\n%s%s%s", c.flags, code, diff, &out, &errs)
		}
	}
}
