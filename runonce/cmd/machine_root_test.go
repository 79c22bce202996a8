package cmd_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/cgroup"
)

// machine is a place for an engine of its own, which is empty again after the test.
type machine struct {
	world cmd.IO
	dir   string
	flags []string
}

// newMachine makes a machine that has the images of the directory; flags go with every
// command.
func newMachine(t *testing.T, images string, flags ...string) machine {
	t.Helper()
	dir := roottest.Dir(t, "rc-")
	// Root of a pod with users of its own is nobody here, and has to reach its root directory.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	m := machine{
		world: cmd.IO{
			Getenv: func(string) string { return "" }, Machine: os.DirFS("/"), Open: backend.Open, Versions: backend.Versions,
		},
		dir:   dir,
		flags: append([]string{"--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--log-dir", filepath.Join(dir, "log")}, flags...),
	}
	if slices.Contains(flags, "--address") {
		// All daemons share the directory in which runc keeps containers by namespace and ID.
		m.flags = append(m.flags, "--namespace", filepath.Base(dir))
	}
	t.Cleanup(func() { m.clear(t) })
	if images != "" {
		m.once(t, "images", "import", images)
	}
	return m
}

// boxImages writes the archives of the images that the cases use.
func boxImages(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := testimages.Write(t.Context(), dir, "box", "facts", "web"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeImages writes the archives of images and returns their directory.
func writeImages(t *testing.T, images ...testimages.Image) string {
	t.Helper()
	dir := t.TempDir()
	if err := testimages.WriteAll(t.Context(), dir, images); err != nil {
		t.Fatal(err)
	}
	return dir
}

// once runs a command that has to succeed.
func (m machine) once(t *testing.T, args ...string) string {
	t.Helper()
	return m.fails(t, 0, args...)
}

// fails runs a command that has to end with the exit code, and returns its standard output.
func (m machine) fails(t *testing.T, want int, args ...string) string {
	t.Helper()
	out, _ := m.run(t, want, args...)
	return out
}

// output is fails with standard error as well.
func (m machine) output(t *testing.T, want int, args ...string) string {
	t.Helper()
	out, errs := m.run(t, want, args...)
	return out + errs
}

func (m machine) run(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	world := m.world
	world.Stdout, world.Stderr, world.Stdin = &out, &errs, strings.NewReader("")
	if code := cmd.Main(testContext(), slices.Concat([]string{"runonce"}, args, m.flags), world); code != want {
		t.Errorf("runonce %s: exit code %d, want %d: %s", strings.Join(args, " "), code, want, &errs)
	}
	return out.String(), errs.String()
}

// clear takes everything down and fails the test when anything stays.
func (m machine) clear(t *testing.T) {
	t.Helper()
	m.once(t, "down", "--all", "--logs")
	nothingLeft(t, m.dir)
}

// nothingLeft fails the test when a mount, a process or a pod's file is left of it.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			t.Errorf("mount left: %s", line)
		}
	}
	// A shim may take a moment to end.
	look := func() []string { return append(processesOf(t, dir), filesOf(t, dir)...) }
	left := look()
	for deadline := time.Now().Add(patience); len(left) > 0 && time.Now().Before(deadline); left = look() {
		time.Sleep(100 * time.Millisecond)
	}
	for _, p := range left {
		t.Errorf("left: %s", p)
	}
}

// filesOf returns the directories of pods, bundles and containers, the shims' sockets and
// the pods' cgroups.
func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	cgroups := "/sys/fs/cgroup/*" + cgroup.ParentOf(filepath.Join(dir, "root"))
	var found []string
	for _, pattern := range []string{
		filepath.Join(dir, "root", "pods", "*"), filepath.Join(dir, "state", "io.containerd.runtime.v2.task", "*", "*"),
		filepath.Join(dir, "state", "runc", "*", "*"), filepath.Join(dir, "state", "s", "*"),
		cgroups + "/pod*", cgroups + "/*/pod*",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, paths...)
	}
	return found
}

// processesOf returns the command lines that name the directory.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, c := range commands {
		if text, err := os.ReadFile(c); err == nil && bytes.Contains(text, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(text, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// awaitProcesses waits until so many processes name the directory. A shim may take a moment to end.
func awaitProcesses(t *testing.T, dir string, want int) {
	t.Helper()
	found := processesOf(t, dir)
	for deadline := time.Now().Add(patience); len(found) != want && time.Now().Before(deadline); found = processesOf(t, dir) {
		time.Sleep(10 * time.Millisecond)
	}
	if len(found) != want {
		t.Errorf("%d processes, want %d: %q", len(found), want, found)
	}
}

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
