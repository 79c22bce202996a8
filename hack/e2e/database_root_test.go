package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/testimages"
)

const databaseExample = "../../examples/database"

// databaseImages writes the images of the example once.
var databaseImages = sync.OnceValues(func() (string, error) {
	root, err := testimages.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "images-database")
	_, err = testimages.Write(context.Background(), dir, "postgres", "web")
	return dir, err
})

// TestDatabase runs examples/database: what the migration has written into a PostgreSQL server arrives at the
// test by the names of two Services, in the right order.
func TestDatabase(t *testing.T) {
	embedded(t, testDatabase)
}

func testDatabase(t *testing.T, b *box) {
	archives, err := databaseImages()
	if err != nil {
		t.Fatal(err)
	}
	up := func(dir string, code int) report {
		return b.up(t, dir, code, "--images-dir", archives, "--exit-code-from", "test", "--timeout", runTimeout).report
	}
	rows := func(r report, test string) {
		t.Helper()
		if diff := cmp.Diff([]string{"db-0=Ready", "migrate-0=Succeeded", "test=" + test, "web-0=Ready", "web-1=Ready"}, r.outcomes()); diff != "" {
			t.Errorf("outcomes (-want +got):\n%s", diff)
		}
	}
	rows(up(databaseExample, 0), "Succeeded")
	b.databaseOrder(t)
	if found := b.inspect(t).Services; len(found) == 0 {
		t.Error("no rules of the running Services found")
	}
	b.databaseDown(t, databaseExample)

	// Another migration, which the test sees through the web servers.
	changed := t.TempDir()
	if err := os.CopyFS(changed, os.DirFS(databaseExample)); err != nil {
		t.Fatal(err)
	}
	migration := filepath.Join(changed, "migrate.yaml")
	text, err := os.ReadFile(migration)
	if err == nil {
		err = os.WriteFile(migration, []byte(strings.Replace(string(text), "'bonjour'", "'salut'", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows(up(changed, 13), "Failed")
	if log := b.logOf(t, "test", "test"); !strings.Contains(log, "web says 'salut', not 'bonjour'") {
		t.Errorf("log of the test:\n%s", log)
	}
	b.databaseDown(t, changed)
}

// databaseOrder fails the test unless the logs of the example tell the right order.
func (b *box) databaseOrder(t *testing.T) {
	t.Helper()
	before := func(first, then time.Time) {
		t.Helper()
		if !first.Before(then) {
			t.Errorf("%s is not before %s", first, then)
		}
	}
	ready := b.loggedAt(t, "db-0", "postgres", "database system is ready to accept connections")
	migrated := b.loggedAt(t, "migrate-0", "migrate", "INSERT 0 2")
	tested := b.loggedAt(t, "test", "test", "bonjour, say web-0 web-1")
	before(ready, migrated)
	for _, pod := range []string{"web-0", "web-1"} {
		serving := b.loggedAt(t, pod, "web", "serving /www")
		before(migrated, serving)
		before(serving, tested)
		before(serving, b.loggedAt(t, pod, "web", "GET /name"))
	}
}

// loggedAt returns when the container has written the text.
func (b *box) loggedAt(t *testing.T, pod, container, text string) time.Time {
	t.Helper()
	log := b.logOf(t, pod, container)
	for line := range strings.Lines(log) {
		stamp, rest, _ := strings.Cut(line, " ")
		if !strings.Contains(rest, text) {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	t.Fatalf("the log of %s/%s has no %q:\n%s", pod, container, text, log)
	return time.Time{}
}

// databaseDown takes the example down, and fails the test unless nothing of its pods and Services is left.
func (b *box) databaseDown(t *testing.T, dir string) {
	t.Helper()
	r := b.run(t, "down", dir, "--logs")
	for _, name := range []string{"default/db-0", "default/migrate-0", "default/test", "default/web-0", "default/web-1", "Service default/db", "Service default/web"} {
		if !strings.Contains(r.stdout, name+" removed\n") {
			t.Errorf("down does not say that it has removed %s", name)
		}
	}
	if r.code != 0 {
		t.Errorf("down: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if left := b.inspect(t).Services; len(left) > 0 {
		t.Errorf("left of Services: %v", left)
	}
	if left := b.containers(t); len(left) > 0 {
		t.Errorf("left of containers: %v", left)
	}
}
