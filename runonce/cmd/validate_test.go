package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStrictTakesWarningsForErrors: validate names both alike but for a word, and exits by
// what --strict makes of warnings.
func TestStrictTakesWarningsForErrors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pod.yaml")
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  serviceAccountName: robot\n  containers: [{name: c, image: i}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	lax := invokeWith(t, noEngine(t), "validate", path)
	if lax.code != 0 || !strings.HasPrefix(lax.stdout, "warning: "+path+":5: spec.serviceAccountName: ") {
		t.Errorf("exit code %d, %q", lax.code, lax.stdout)
	}
	strict := invokeWith(t, noEngine(t), "validate", "--strict", path)
	if strict.code != 2 || !strings.HasPrefix(strict.stdout, path+":5: spec.serviceAccountName: ") {
		t.Errorf("with --strict: exit code %d, %q", strict.code, strict.stdout)
	}
}
