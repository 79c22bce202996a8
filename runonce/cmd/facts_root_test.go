package cmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/runonce/runonce/hack/daemon"
	"github.com/runonce/runonce/internal/roottest"
)

// inside is what the facts applet prints, as far as these tests look at it.
type inside struct {
	PID        int                 `json:"pid"`
	UID        int                 `json:"uid"`
	GID        int                 `json:"gid"`
	Groups     []int               `json:"groups"`
	UIDMap     []string            `json:"uidMap"`
	Caps       map[string][]string `json:"caps"`
	NoNewPrivs bool                `json:"noNewPrivs"`
	Seccomp    string              `json:"seccomp"`
	Namespaces map[string]string   `json:"namespaces"`
	Processes  []string            `json:"processes"`
	Sysctls    map[string]string   `json:"sysctls"`
	Mounts     map[string]struct {
		ReadOnly bool `json:"readOnly"`
	} `json:"mounts"`
	Files map[string]struct {
		Mode    string `json:"mode"`
		UID     int    `json:"uid"`
		GID     int    `json:"gid"`
		Content string `json:"content"`
		Error   string `json:"error"`
	} `json:"files"`
}

// everywhere runs the test on the embedded engine and on both daemons.
func everywhere(t *testing.T, test func(t *testing.T, m machine)) {
	t.Helper()
	roottest.Require(t)
	images := boxImages(t)
	t.Run("embedded", func(t *testing.T) { test(t, newMachine(t, images)) })
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			d := daemon.Serve(t, version)
			test(t, newMachine(t, images, "--address", d.Socket))
		})
	}
}

// podDir writes a manifest and returns its directory.
func podDir(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pods.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// facts reads what the facts applet printed in a container.
func (m machine) facts(t *testing.T, pod, container string) inside {
	t.Helper()
	var v inside
	out := awaitObject(func() (string, bool) { return m.once(t, "logs", pod, "-c", container), !t.Failed() })
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("logs of %s: %v\n%s", container, err, out)
	}
	return v
}
