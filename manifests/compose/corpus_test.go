package compose

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCorpus converts projects as people have them. What is said about each is in testdata/corpus/problems.txt, and all manifests
// are valid for runonce. COMPOSE_CORPUS names a directory with more, of which each directory has a compose.yaml.
func TestCorpus(t *testing.T) {
	t.Setenv("TIMEZONE", "UTC")
	paths := globbed(t, "testdata/corpus/*.yaml")
	if len(paths) == 0 {
		t.Fatal("no files")
	}
	out := t.TempDir()
	var said strings.Builder
	for _, path := range paths {
		problems := convertTo(t, path, filepath.Join(out, strings.TrimSuffix(filepath.Base(path), ".yaml")))
		fmt.Fprintf(&said, "%s\n", path)
		for _, line := range lines(problems) {
			fmt.Fprintf(&said, "  %s\n", line)
		}
	}
	golden(t, "testdata/corpus/problems.txt", said.String())
	if other := os.Getenv("COMPOSE_CORPUS"); other != "" {
		count := map[string]int{}
		for _, path := range globbed(t, filepath.Join(other, "*/*compose.y*ml")) {
			switch problems := convertTo(t, path, filepath.Join(out, filepath.Base(filepath.Dir(path)))); {
			case len(problems.Fatal()) > 0:
				count["with errors"]++
			case len(problems) > 0:
				count["with warnings"]++
			default:
				count["without a warning"]++
			}
		}
		t.Logf("files of %s: %v", other, count)
	}
	if _, err := WriteDir(filepath.Join(out, "document"), documented(t)); err != nil {
		t.Error(err)
	}
	validate(t, out)
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// convertTo converts a file, with images for what it builds, and writes the manifests to a directory, as the namespace of that name.
func convertTo(t *testing.T, path, dir string) Problems {
	t.Helper()
	namespace := strings.ToLower(filepath.Base(dir))
	p, err := Load(t.Context(), LoadOptions{Files: []string{path}})
	if err != nil {
		return Problems{{Message: err.Error(), Fatal: true}}
	}
	o := Options{Namespace: namespace, Machine: os.DirFS("/"), Images: map[string]string{}}
	for name, s := range p.Services {
		if s.Image == "" {
			o.Images[name] = "localhost/" + strings.ToLower(name) + ":1"
		}
	}
	files, problems := Convert(p, o)
	if len(files) == 0 {
		return problems
	}
	if _, err := WriteDir(dir, files); err != nil {
		t.Error(err)
	}
	return problems
}

// validate has "runonce validate" check all manifests below a directory.
func validate(t *testing.T, dir string) {
	t.Helper()
	runonce := filepath.Join(t.TempDir(), "runonce")
	run(t, "go", "build", "-C", "../..", "-tags", "grpcnotrace", "-o", runonce, ".")
	run(t, runonce, "validate", "-R", dir)
}

func run(t *testing.T, args ...string) {
	t.Helper()
	c := exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// golden compares a text with a file, which -update writes again.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		write(t, path, got)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

const document = "../../docs/migrating/docker-compose.md"

// example returns the blocks of the document: the project, and its manifests.
func example(t *testing.T) (text, project, manifests string) {
	t.Helper()
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(content), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of YAML, want the project and its manifests", len(blocks))
	}
	return string(content), blocks[0][1], blocks[1][1]
}

// documented returns what becomes of the project of the document.
func documented(t *testing.T) []File {
	t.Helper()
	_, project, _ := example(t)
	p, err := load(t, map[string]string{"compose.yaml": project}, LoadOptions{ProjectName: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	files, problems := Convert(p, Options{})
	if len(problems) > 0 {
		t.Error(problems)
	}
	return files
}

// TestDocument: the example of the document is what the program makes of it. TestCorpus has it validated.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, _, manifests := example(t)
	var got strings.Builder
	if err := Print(&got, documented(t)); err != nil {
		t.Fatal(err)
	}
	if *update {
		write(t, document, strings.Replace(text, manifests, got.String(), 1))
		return
	}
	if diff := cmp.Diff(got.String(), manifests); diff != "" {
		t.Errorf("the manifests (-) and the document (+):\n%s", diff)
	}
}
