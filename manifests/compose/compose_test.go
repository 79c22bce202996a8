package compose

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files again")

// load reads a project whose files are below dir, as compose.yaml and others.
func load(t *testing.T, files map[string]string, o LoadOptions) (*Project, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	if o.Files == nil {
		o.Files = []string{"compose.yaml"}
	}
	for i, name := range o.Files {
		o.Files[i] = filepath.Join(dir, name)
	}
	for i, name := range o.EnvFiles {
		o.EnvFiles[i] = filepath.Join(dir, name)
	}
	p, err := Load(t.Context(), o)
	for i := range sourcesOf(p) {
		p.sources[i].name = strings.TrimPrefix(p.sources[i].name, dir+"/")
	}
	return p, err
}

func sourcesOf(p *Project) sources {
	if p == nil {
		return nil
	}
	return p.sources
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// objects returns the objects of the files, by "Kind/name".
func objects(t *testing.T, files []File) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, f := range files {
		text, err := f.Text()
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(text), "---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
			}
			var tree map[string]any
			if err := yaml.Unmarshal([]byte(document), &o); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(document), &tree); err != nil {
				t.Fatal(err)
			}
			all[o.Kind+"/"+o.Metadata.Name] = tree
		}
	}
	return all
}

// within says what of want is not in got: objects may have more keys, lists have the same items.
func within(want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return cmp.Diff(want, got)
		}
		for key, value := range w {
			if value == nil {
				if other, ok := g[key]; ok {
					return key + ": is there: " + cmp.Diff(nil, other)
				}
				continue
			}
			if problem := within(value, g[key]); problem != "" {
				return key + ": " + problem
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return cmp.Diff(want, got)
		}
		for i := range w {
			if problem := within(w[i], g[i]); problem != "" {
				return problem
			}
		}
		return ""
	}
	return cmp.Diff(want, got)
}

// fieldCase is what becomes of the fields of a service.
type fieldCase struct {
	name    string
	service string // the fields of the service web besides its image, in flow style or as lines
	more    string // of the file
	want    string // objects by their names, of which these keys are looked at; the Pod is web
	// problems are those of the conversion, with "error: " in front of those that are fatal.
	problems string
}

func TestFields(t *testing.T) {
	t.Parallel()
	for _, c := range slices.Concat(containerCases, networkCases, volumeCases, orderCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			text := "services:\n  web:\n    image: nginx\n"
			for line := range strings.Lines(c.service) {
				text += "    " + strings.TrimRight(line, "\n") + "\n"
			}
			p, err := load(t, map[string]string{"compose.yaml": text + c.more, "some.env": "A=1\nB=${A}2\n", "secret.txt": "hidden"}, LoadOptions{ProjectName: "p"})
			if err != nil {
				t.Fatal(err)
			}
			files, problems := Convert(p, Options{Machine: machine(p.WorkingDir)})
			if diff := cmp.Diff(strings.TrimSpace(c.problems), strings.ReplaceAll(strings.Join(lines(problems), "\n"), p.WorkingDir, "DIR")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			var want map[string]any
			if err := yaml.Unmarshal([]byte(strings.ReplaceAll(c.want, "DIR", p.WorkingDir)), &want); err != nil {
				t.Fatal(err)
			}
			all := objects(t, files)
			for name, object := range want {
				if !strings.Contains(name, "/") {
					t.Fatalf("%q is not KIND/NAME", name)
				}
				if object == nil {
					if _, ok := all[name]; ok {
						t.Errorf("there is a %s", name)
					}
					continue
				}
				if problem := within(object, any(all[name])); problem != "" {
					t.Errorf("%s: %s", name, problem)
				}
			}
		})
	}
}

// machine has files of the machine on which the conversion runs.
func machine(dir string) fstest.MapFS {
	dir = strings.TrimPrefix(dir, "/")
	return fstest.MapFS{
		dir + "/secret.txt": {Data: []byte("hidden")}, dir + "/binary": {Data: []byte{0xff, 0xfe}}, dir + "/large": {Data: make([]byte, maxObject+1)},
		dir + "/nginx.conf": {Data: []byte("conf")}, dir + "/html/index.html": {}, "run/app.sock": {Mode: os.ModeSocket | 0o600},
		"dev/null": {Mode: os.ModeDevice | os.ModeCharDevice | 0o666},
	}
}

func lines(problems Problems) (all []string) {
	for _, p := range problems {
		text := p.String()
		if p.Fatal {
			text = "error: " + text
		}
		all = append(all, strings.ReplaceAll(text, p.File+":", "")) // the line and what follows
	}
	return all
}

// TestEveryAttributeIsKnown: an attribute that the format gains is not ignored silently.
func TestEveryAttributeIsKnown(t *testing.T) {
	t.Parallel()
	all := attributes(reflect.ValueOf(types.ServiceConfig{}))
	known := slices.Concat(convertedAttributes, neutralAttributes, sorted(lostAttributes))
	slices.Sort(known)
	if diff := cmp.Diff(sorted(all), known); diff != "" {
		t.Errorf("attributes of services (-) and those in our lists (+):\n%s", diff)
	}
}
