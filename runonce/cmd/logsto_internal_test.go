package cmd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce"
)

// TestLogCopies: every instance that has a log has one file, also if its log was made for one before it
// that could not be started.
func TestLogCopies(t *testing.T) {
	t.Parallel()
	logs, dir := t.TempDir(), filepath.Join(t.TempDir(), "a", "b")
	l := &logCopies{}
	if err := l.open(dir); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := (&logCopies{}).open(dir); err == nil {
		t.Error("another run uses the same directory")
	}
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "prod", "web", "1"
	for name, text := range map[string]string{"0": "first", "1": "second", "3": "beside"} {
		entry := "2026-01-02T03:04:05.000000006Z stdout F " + text + "\n2026-01-02T03:04:05.000000007Z stderr F of " + name + "\n"
		if err := os.WriteFile(filepath.Join(logs, name), []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ container, path string }{{"main", "0"}, {"main", "0"}, {"side", "3"}, {"gone", "2"}, {"main", "1"}, {"main", "4"}} {
		l.created(pod, c.container, filepath.Join(logs, c.path))
	}
	other := &v1.Pod{}
	l.write(t.Context(), []runonce.Result{{Pod: pod}, {Pod: other}}, func(r *runonce.Result) []instance { return l.instancesOf(r.Pod.UID) })
	if l.err != nil {
		t.Error(l.err)
	}
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got[e.Name()] = string(text)
	}
	want := map[string]string{
		"prod_web_main.1.log": "first\nof 0\n", "prod_web_main.log": "second\nof 1\n", "prod_web_side.log": "beside\nof 3\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
