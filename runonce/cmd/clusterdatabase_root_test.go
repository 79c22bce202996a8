package cmd_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// clusterDatabase: examples/database has the same rows and exit codes on a cluster as on a machine (see TestDatabase in
// hack/e2e).
func clusterDatabase(t *testing.T, c onCluster) {
	if err := c.LoadImages(t.Context(), "postgres"); err != nil {
		t.Fatal(err)
	}
	stop, err := c.StartServices(t.Context())
	t.Cleanup(func() {
		if err := stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(examples+"database")); err != nil {
		t.Fatal(err)
	}
	c.databaseRows(t, dir, 0, "Succeeded")
	if log := c.once(t, "logs", "test"); log != "bonjour, say web-0 web-1\n" {
		t.Errorf("log of the test: %q", log)
	}
	file := filepath.Join(dir, "test.yaml")
	text := strings.Replace(read(t, file), "value: bonjour", "value: salut", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.databaseRows(t, dir, 13, "Failed")
	down := c.output(t, 0, "down", dir)
	for _, kind := range []string{"pods", "services", "secrets", "configmaps"} {
		if left := c.names(t, kind, "runonce/managed"); len(left) > 0 {
			t.Errorf("%s left: %s\n%s", kind, left, down)
		}
	}
}

// databaseRows runs the example, whose test has to end with the exit code, and checks the rows.
func (c onCluster) databaseRows(t *testing.T, dir string, code int, test string) {
	t.Helper()
	out := c.fails(t, code, "run", "--exit-code-from", "test", "--timeout", patience.String(), "-o", "json", dir)
	var report struct {
		Results []struct{ Name, Outcome string } `json:"results"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var rows []string
	for _, r := range report.Results {
		rows = append(rows, r.Name+"="+r.Outcome)
	}
	if diff := cmp.Diff([]string{"db-0=Ready", "migrate-0=Succeeded", "test=" + test, "web-0=Ready", "web-1=Ready"}, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s\n%s", diff, out)
	}
}
