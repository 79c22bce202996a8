package provider_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestDocumentedProgram: the program in docs/provider.md is formatted, and right as far as it uses
// packages that this module has. Those of virtual-kubelet and some of client-go it has not: what
// is done with their types is not checked.
func TestDocumentedProgram(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/provider.md")
	must(t, err)
	blocks := regexp.MustCompile("(?s)\n```go\n(.*?)```\n").FindAllSubmatch(doc, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d programs", len(blocks))
	}
	fset := token.NewFileSet()
	var files []*ast.File
	var paths []string
	for i, b := range blocks {
		formatted, err := format.Source(b[1])
		must(t, err)
		want(t, "formatted", string(b[1]), string(formatted))
		f, err := parser.ParseFile(fset, fmt.Sprintf("block%d.go", i+1), b[1], parser.SkipObjectResolution)
		must(t, err)
		files = append(files, f)
		for _, s := range f.Imports {
			path, err := strconv.Unquote(s.Path.Value)
			must(t, err)
			if isKnown(path) {
				paths = append(paths, path)
			}
		}
	}
	exports := exportsOf(t, paths)
	conf := types.Config{
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
			if exports[path] == "" {
				return nil, errors.New("not in this module")
			}
			return os.Open(exports[path])
		}),
		Error: func(err error) {
			if !strings.Contains(err.Error(), "not in this module") {
				t.Error(err)
			}
		},
	}
	// Its error is the first one of the above.
	_, _ = conf.Check("main", fset, files, nil)
}

// isKnown says whether this module has the package.
func isKnown(path string) bool {
	host, _, _ := strings.Cut(path, "/")
	return !strings.Contains(host, ".") || strings.HasPrefix(path, "github.com/runonce/") ||
		strings.HasPrefix(path, "k8s.io/api/") || strings.HasPrefix(path, "k8s.io/apimachinery/")
}

// exportsOf returns the files with the types of the packages and of all that they import.
func exportsOf(t *testing.T, paths []string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)...)
	var message bytes.Buffer
	cmd.Stderr = &message
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &message)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 {
			exports[f[0]] = f[1]
		}
	}
	return exports
}
