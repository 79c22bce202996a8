package imports_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDependenciesAreExplained: docs/dependencies.md lists exactly the modules that this module, and those
// of the provider and the converter, import directly.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	own, others, _ := strings.Cut(string(doc), "\n## The node of a cluster\n")
	ofProvider, ofConverter, _ := strings.Cut(others, "\n## The converter of compose files\n")
	for path, section := range map[string]string{module: own, module + "/runtime/provider": ofProvider, module + "/manifests/compose": ofConverter} {
		if diff := cmp.Diff(direct(t, path), explained(section)); diff != "" {
			t.Errorf("imported by %s (-) and in docs/dependencies.md (+):\n%s", path, diff)
		}
	}
}

// explained returns the modules in the first column of the tables.
func explained(section string) (all []string) {
	rows := regexp.MustCompile(`(?m)^\| (.*?) \|`)
	names := regexp.MustCompile("`([^`]+)`")
	for _, row := range rows.FindAllStringSubmatch(section, -1) {
		for _, m := range names.FindAllStringSubmatch(row[1], -1) {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	return all
}

// direct returns the modules that packages of a module of this project import directly, including in tests.
func direct(t *testing.T, of string) []string {
	t.Helper()
	imports := golist(t, of, "-f", "{{range .Imports}}{{.}} {{end}}{{range .TestImports}}{{.}} {{end}}{{range .XTestImports}}{{.}} {{end}}", of+"/...")
	imported := map[string]bool{}
	for path := range strings.FieldsSeq(imports) {
		imported[path] = true
	}
	modules := map[string]bool{}
	all := golist(t, of, "-deps", "-test", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", of+"/...")
	for line := range strings.Lines(all) {
		f := strings.Fields(line)
		if len(f) == 2 && imported[f[0]] && f[1] != of && f[1] != module {
			modules[f[1]] = true
		}
	}
	list := make([]string, 0, len(modules))
	for m := range modules {
		list = append(list, m)
	}
	slices.Sort(list)
	return list
}

// golist runs "go list" in a module of this project.
func golist(t *testing.T, of string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = filepath.Join("../..", strings.TrimPrefix(of, module))
	var message strings.Builder
	cmd.Stderr = &message
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, message.String())
	}
	return string(out)
}
