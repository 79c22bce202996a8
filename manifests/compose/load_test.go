package compose

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilesOfAProject(t *testing.T) {
	t.Parallel()
	p, err := load(t, map[string]string{
		"compose.yaml": `
include:
- sub/compose.yaml
- path: [more.yaml]
x-common: &common {cpuset: "0", <<: &deep {uts: host}}
services:
  web:
    extends: {file: base.yaml, service: base}
    image: web:${TAG}
    ulimits: {nofile: 1}
  plain:
    <<: [*common]
    image: plain:${UNSET_IN_TESTS}
  debug: {image: debug, profiles: [debug]}
  other: {image: other, profiles: [other]}
`,
		"override.yaml":    "services:\n  web:\n    pids_limit: 7\n",
		"base.yaml":        "services:\n  base:\n    image: base\n    oom_score_adj: 5\n",
		"sub/compose.yaml": "services:\n  sub:\n    image: sub\n    umask: 18\n",
		"more.yaml":        "services:\n  more: {image: more}\n",
		"tag.env":          "TAG=v1\n",
	}, LoadOptions{Files: []string{"compose.yaml", "override.yaml"}, EnvFiles: []string{"tag.env"}, Profiles: []string{"debug"}, ProjectName: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"debug", "more", "plain", "sub", "web"}, p.ServiceNames()); diff != "" {
		t.Error(diff)
	}
	if got := p.Services["web"].Image; got != "web:v1" {
		t.Errorf("image %q", got)
	}
	_, problems := Convert(p, Options{})
	var got []string
	for _, problem := range problems {
		where, _, _ := strings.Cut(problem.String(), ": ")
		if i := strings.LastIndex(where, "/compose.yaml"); i >= 0 && filepath.IsAbs(where) { // found before the names were shortened
			where = where[i+1:]
		}
		got = append(got, where)
	}
	want := []string{"base.yaml:4", "compose.yaml:10", "compose.yaml:13", "compose.yaml:13", "compose.yaml:5", "compose.yaml:5", "override.yaml:3", "sub/compose.yaml:4"}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%s", diff, problems.Error())
	}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"services:\n  web:\n    image: x\n    foo: 1\n", "compose.yaml:4: services.web.foo: unknown field"},
		{"services:\n  web:\n    image: x\n    depends_on: [db]\n", `compose.yaml:2: service "web" depends on undefined service "db"`},
		{"services:\n  web:\n    image: x\n    mem_limit: 3x\n", "compose.yaml:4: decoding failed due to the following error(s): 'services[web].mem_limit' invalid suffix: 'x'"},
		{"services:\n  web:\n    image: ${UNSET_IN_TESTS:?say which}\n", "compose.yaml:3: error while interpolating services.web.image: required variable UNSET_IN_TESTS is missing a value: say which"},
		{"services:\n  a: {image: x, depends_on: [b]}\n  b: {image: x, depends_on: [a]}\n", "compose.yaml: dependency cycle detected: a -> b -> a"},
		{"services: {web: {image: x, volumes: ['data:/x']}}\n", `compose.yaml:1: service "web" refers to undefined volume data`},
		{"a: [\n", "failed to parse compose.yaml: yaml: while parsing"},
		{"[]\n", "compose.yaml: "},
	} {
		_, err := load(t, map[string]string{"compose.yaml": c.text}, LoadOptions{})
		var problems Problems
		if !errors.As(err, &problems) || len(problems) != 1 || !problems[0].Fatal {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		// The files are in a temporary directory.
		got := problems[0].String()
		if i := strings.Index(got, "compose.yaml"); i > 0 {
			start := strings.LastIndex(got[:i], " ") + 1
			got = got[:start] + got[i:]
		}
		if !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// TestVariablesThatAreNotSet: one warning for each, and none for those with a default.
func TestVariablesThatAreNotSet(t *testing.T) {
	t.Parallel()
	p, err := load(t, map[string]string{"compose.yaml": `services:
  web:
    image: x
    environment: {A: "${UNSET_A}-$UNSET_B", B: "${UNSET_C:-c}${UNSET_D-}${UNSET_E:+e}", C: "$$UNSET_F ${UNSET_A}"}
`}, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := Problems{
		{File: "compose.yaml", Line: 4, Message: "the variable UNSET_A is not set: it is empty"},
		{File: "compose.yaml", Line: 4, Message: "the variable UNSET_B is not set: it is empty"},
	}
	got := p.problems.sorted()
	for i := range got {
		got[i].File = filepath.Base(got[i].File)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDefaultFiles: without names, the files are those of docker compose, with the .env beside them.
func TestDefaultFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "docker-compose.yml"), "services: {web: {image: 'web:${TAG}'}}\n")
	write(t, filepath.Join(dir, "docker-compose.override.yml"), "services: {web: {working_dir: /app}}\n")
	write(t, filepath.Join(dir, ".env"), "TAG=v2\n")
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(below)
	p, err := Load(t.Context(), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Services["web"]; s.Image != "web:v2" || s.WorkingDir != "/app" {
		t.Errorf("%+v", s)
	}
	t.Chdir(t.TempDir())
	if _, err := Load(t.Context(), LoadOptions{}); err == nil || !strings.Contains(err.Error(), "no compose file here") {
		t.Errorf("without a file: %v", err)
	}
}

// TestImages: --image takes the place of what the file says.
func TestImages(t *testing.T) {
	t.Parallel()
	p, err := load(t, map[string]string{"compose.yaml": "services:\n  web: {build: ., pre_start: [{command: x}]}\n"}, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files, problems := Convert(p, Options{Images: map[string]string{"web": "localhost/web:1"}, Namespace: "shop"})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := map[string]any{
		"metadata": map[string]any{"namespace": "shop"},
		"spec": map[string]any{
			"containers":     []any{map[string]any{"image": "localhost/web:1"}},
			"initContainers": []any{map[string]any{"image": "localhost/web:1"}},
		},
	}
	if problem := within(want, any(objects(t, files)["Pod/web"])); problem != "" {
		t.Error(problem)
	}
	_, problems = Convert(p, Options{Images: map[string]string{"wbe": "x"}})
	if !strings.Contains(problems.Fatal().Error(), "--image wbe=x: there is no such service") {
		t.Error(problems)
	}
	_, problems = Convert(p, Options{Images: map[string]string{"web": "x:"}})
	if !strings.Contains(problems.Fatal().Error(), `service "web": "x:" is no name of an image`) {
		t.Error(problems)
	}
}
