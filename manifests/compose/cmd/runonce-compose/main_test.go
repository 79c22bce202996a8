package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/log"
	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/manifests/compose"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{
		"a.yaml", "-f", "b.yaml", "--file=c.yaml", "-o", "out", "--profile", "x", "--profile", "y", "--env-file", "e", "-n", "ns", "-p", "name",
		"--project-directory", "/dir", "--image", "web=x:1", "--strict", "-",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := compose.LoadOptions{
		Files: []string{"a.yaml", "b.yaml", "c.yaml", "-"}, EnvFiles: []string{"e"}, Profiles: []string{"x", "y"}, Directory: "/dir", ProjectName: "name",
	}
	if diff := cmp.Diff(want, o.load); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"web": "x:1"}, o.conversion.Images); diff != "" || o.conversion.Namespace != "ns" || o.dir != "out" || !o.strict {
		t.Errorf("%s\n%+v", diff, o)
	}
}

func TestMain(m *testing.M) {
	redirectLog(os.Stderr)
	os.Exit(m.Run())
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"good.yaml":   "version: '3'\nservices: {web: {image: x}}\n",
		"warned.yaml": "services:\n  web: {image: x, ulimits: {nofile: 1}, tty: true}\n",
		"bad.yaml":    "services: {web: {build: .}, db: {build: .}}\n",
		"broken.yaml": "services: {web: {image: x, foo: y}}\n",
		"empty.yaml":  "services: {web: {image: x, profiles: [p]}}\n",
		"taken":       "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args   string
		code   int
		stdout string // what it begins with
		stderr string // all of it, or its end behind "..."
	}{
		{"", 2, "", "runonce-compose: no command given: see \"runonce-compose help\"\n"},
		{"help", 0, "runonce-compose - convert", ""},
		{"convert -h", 0, "runonce-compose - convert", ""},
		{"convet x", 2, "", "runonce-compose: unknown command \"convet\": see \"runonce-compose help\"\n"},
		{"convert --nope", 2, "", "runonce-compose: flag provided but not defined: -nope: see \"runonce-compose help\"\n"},
		{"convert --image web good.yaml", 2, "", "...must be SERVICE=IMAGE: see \"runonce-compose help\"\n"},
		{"convert none.yaml", 2, "", "...none.yaml: no such file or directory\n"},
		{"convert good.yaml", 0, "apiVersion: v1\nkind: Pod\n", ""},
		{"convert good.yaml -o out", 0, "", ""},
		{"convert good.yaml -o taken", 1, "", "runonce-compose: writing the manifests: mkdir taken: not a directory\n"},
		{"convert warned.yaml", 0, "apiVersion: v1\n", "warning: warned.yaml:2: services.web.ulimits: containers have the limits of the container engine\n"},
		{
			"convert --strict warned.yaml", 2, "",
			"error: warned.yaml:2: services.web.ulimits: containers have the limits of the container engine\nrunonce-compose: 1 error: nothing was written\n",
		},
		{"convert broken.yaml", 2, "", "error: broken.yaml:1: services.web.foo: unknown field\nrunonce-compose: 1 error: nothing was written\n"},
		{"convert bad.yaml", 2, "", "...runonce-compose: 2 errors: nothing was written\n"},
		{"convert empty.yaml", 2, "", "runonce-compose: the project has no services in the active profiles\n"},
		{"convert empty.yaml --profile p -n ns", 0, "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    app: web\n  name: web\n  namespace: ns\n", ""},
		{"convert empty.yaml --profile p -o out", 0, "", ""},
		{"convert warned.yaml -p x --image web=y -o out2", 0, "", "warning: warned.yaml:2: services.web.ulimits: containers have the limits of the container engine\n"},
	} {
		var stdout, stderr bytes.Buffer
		code := start(strings.Fields(c.args), &stdout, &stderr)
		end, cut := strings.CutPrefix(c.stderr, "...")
		if code != c.code || !strings.HasPrefix(stdout.String(), c.stdout) || c.stdout == "" && stdout.Len() > 0 ||
			!strings.HasSuffix(stderr.String(), end) || !cut && stderr.String() != c.stderr {
			t.Errorf("%q: %d\n%s\n%s", c.args, code, &stdout, &stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "out/web.yaml")); err != nil {
		t.Error(err)
	}
	// What is left of an earlier conversion is named.
	if err := os.WriteFile(filepath.Join(dir, "other.yaml"), []byte("services: {api: {image: x}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := start([]string{"convert", "other.yaml", "-o", "out"}, &stdout, &stderr); code != 0 || !strings.Contains(stderr.String(), "out/web.yaml is from an earlier conversion") {
		t.Errorf("%d: %s", code, &stderr)
	}
}

// TestLoaderWarnings: what the loader logs is one line, and that version is obsolete is not said.
func TestLoaderWarnings(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	p := printer{&b}
	for _, message := range []string{"x.yaml: the attribute `version` is obsolete", "external.name is deprecated"} {
		if err := p.Fire(&log.Entry{Message: message}); err != nil {
			t.Error(err)
		}
	}
	if got := b.String(); got != "runonce-compose: warning: external.name is deprecated\n" {
		t.Error(got)
	}
}
