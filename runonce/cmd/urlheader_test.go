package cmd_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/runonce/cmd"
)

// invokeOn runs a command on the machine in memory, of which validate needs nothing.
func invokeOn(t *testing.T, m *memory, args ...string) invocation {
	t.Helper()
	if args[0] == "validate" {
		return invokeWith(t, cmd.IO{Open: m.open}, args...)
	}
	return invoke(t, m, args...)
}

// TestPrivateURL: pods of a URL that wants a token run, and stop without it; nothing that the program prints or keeps has
// the token or the password.
func TestPrivateURL(t *testing.T) {
	t.Parallel()
	pod, err := os.ReadFile(manifest(t, "private", "Always", "[sleep]"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Token") != "sesame" {
			http.Error(w, "no token", http.StatusForbidden)
			return
		}
		_, _ = w.Write(pod)
	}))
	t.Cleanup(server.Close)
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("X-Token: sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMemory(t)
	address := strings.Replace(server.URL, "http://", "http://me:sesame@", 1) + "/pod.yaml?key=sesame"
	for _, step := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"validate", address}, 2, "the server responded with 403 Forbidden"},
		{[]string{"validate", "--url-header", "X-Token: sesame", address}, 0, ""},
		{[]string{"plan", "--node", nodeFile(), "--url-header-file", headers, address, "-o", "json"}, 0, `"name": "private"`},
		{[]string{"run", "--settle", "0", "--node", nodeFile(), "--url-header-file", headers, "--log-level", "debug", "-o", "json", address}, 0, `"outcome": "Running"`},
		{[]string{"ps", "-o", "json"}, 0, "http://me:xxxxx@127.0.0.1"},
		{[]string{"down", address}, 0, "private"},
		{[]string{"down", address}, 2, "no pod was started from http://me:xxxxx@"},
	} {
		got := invokeOn(t, m, step.args...)
		if got.code != step.code || !strings.Contains(got.stdout+got.stderr, step.want) || strings.Contains(got.stdout+got.stderr, "sesame") {
			t.Errorf("%v: code %d\n%s%s", step.args, got.code, got.stdout, got.stderr)
		}
	}
	err = filepath.WalkDir(m.root, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "sesame") {
			t.Errorf("%s has the token:\n%s", path, data)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
