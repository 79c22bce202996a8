package imports_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDependenciesAreExplained: docs/dependencies.md lists exactly the modules that are imported
// directly.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	var explained []string
	rows := regexp.MustCompile(`(?m)^\| (.*?) \|`)
	names := regexp.MustCompile("`([^`]+)`")
	for _, row := range rows.FindAllStringSubmatch(string(doc), -1) {
		for _, m := range names.FindAllStringSubmatch(row[1], -1) {
			explained = append(explained, m[1])
		}
	}
	slices.Sort(explained)
	if diff := cmp.Diff(direct(t), explained); diff != "" {
		t.Errorf("imported (-) and in docs/dependencies.md (+):\n%s", diff)
	}
}

// direct returns the modules that packages of this module import directly, including in tests.
func direct(t *testing.T) []string {
	t.Helper()
	imports := golist(t, "-f", "{{range .Imports}}{{.}} {{end}}{{range .TestImports}}{{.}} {{end}}{{range .XTestImports}}{{.}} {{end}}", module+"/...")
	imported := map[string]bool{}
	for path := range strings.FieldsSeq(imports) {
		imported[path] = true
	}
	modules := map[string]bool{}
	all := golist(t, "-deps", "-test", "-f", "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}", module+"/...")
	for line := range strings.Lines(all) {
		f := strings.Fields(line)
		if len(f) == 2 && imported[f[0]] && f[1] != module {
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

func golist(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	var message strings.Builder
	cmd.Stderr = &message
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, message.String())
	}
	return string(out)
}
