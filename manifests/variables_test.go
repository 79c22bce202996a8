package manifests

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVariables(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one", "\ufeff# a comment\n\nA=1\n  B= two # words \nC='quoted'\r\nHOST\nABSENT\nD=a=b\nE=\n")
	two := write("two", "A=2\nHOST=file\n")
	environ := []string{"HOST=h", "A=env", "=odd"}
	for _, c := range []struct {
		files   []string
		process bool
		want    map[string]string
	}{
		{nil, true, map[string]string{"A": "env", "HOST": "h"}},
		{[]string{os.DevNull}, false, map[string]string{}},
		{[]string{one}, false, map[string]string{"A": "1", "B": " two # words ", "C": "'quoted'", "HOST": "h", "D": "a=b", "E": ""}},
		{[]string{one, two}, false, map[string]string{"A": "2", "B": " two # words ", "C": "'quoted'", "HOST": "file", "D": "a=b", "E": ""}},
		{[]string{two, one}, true, map[string]string{"A": "env", "B": " two # words ", "C": "'quoted'", "HOST": "h", "D": "a=b", "E": ""}},
	} {
		lookup, err := Variables(environ, c.files, c.process)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, name := range []string{"A", "B", "C", "D", "E", "HOST", "ABSENT", "#"} {
			if value, ok := lookup(name); ok {
				got[name] = value
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.files, diff)
		}
	}
	bad := write("bad", "A=1\n=x\nexport B=1\nC=\xff\n")
	_, err := Variables(nil, []string{bad, filepath.Join(dir, "none"), dir}, false)
	want := strings.NewReplacer("DIR", dir).Replace("DIR/bad:2: no name before = (write NAME=VALUE)\n" +
		"DIR/bad:3: the name of a variable has no spaces (write NAME=VALUE)\n" +
		"DIR/bad:4: not UTF-8 text (write NAME=VALUE)\n" +
		"DIR/none: does not exist\nDIR: a directory is not read")
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

// TestVariablesInAllInput: every way to read manifests substitutes variables, and none by default.
func TestVariablesInAllInput(t *testing.T) {
	t.Parallel()
	text := strings.Replace(pod("p"), "busybox:1", "busybox:${TAG}", 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
	defer server.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir, "-", server.URL} {
		o := Options{Stdin: strings.NewReader(text), Variables: func(string) (string, bool) { return "7", true }}
		set, err := ReadPaths(t.Context(), []string{path}, o)
		if err != nil || set.Pods[0].Spec.Containers[0].Image != "busybox:7" {
			t.Errorf("%s: %v", path, err)
		}
		o = Options{Stdin: strings.NewReader(text)}
		if _, err = ReadPaths(t.Context(), []string{path}, o); err == nil || !strings.Contains(err.Error(), "${TAG}") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
