package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runonce/runonce/hack/machine"
	"github.com/runonce/runonce/internal/testing/disk"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// limit is the timeout of each command. It is generous: a command that reaches it hangs.
const limit = 5 * time.Minute

// program builds the program once.
var program = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(testimages.Compiled); dir != "" {
		return filepath.Join(dir, testimages.Main), nil
	}
	root, err := testimages.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "runonce-e2e")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the program: %w\n%s", err, out)
	}
	return path, nil
})

// images writes the archives of the test images once.
var images = sync.OnceValues(func() (string, error) {
	root, err := testimages.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "images-e2e")
	_, err = testimages.Write(context.Background(), dir, "box", "quits", "tar")
	return dir, err
})

// box is an installation of runonce for one test, separate from those of other tests.
type box struct {
	dir     string
	address string // of a daemon; empty for the embedded engine
	disk    disk.Disk
	before  machine.State
}

// newBox creates a box. At the end of the test, everything in it is removed, and the test fails
// unless the machine is as it was before.
func newBox(t testing.TB, address string) *box {
	t.Helper()
	roottest.Require(t)
	b := &box{dir: roottest.Dir(t, "ro-"), address: address}
	b.before = b.inspect(t)
	t.Cleanup(func() {
		if r := b.run(t, "down", "--all"); r.code != 0 {
			t.Errorf("down --all: exit code %d\n%s", r.code, r.stderr)
		}
		b.unchanged(t)
	})
	return b
}

// flags are the flags of every command.
func (b *box) flags() []string {
	f := []string{"--root", b.dir + "/root", "--state", b.dir + "/state", "--log-dir", b.dir + "/logs"}
	if b.address != "" {
		// All daemons share the directory in which runc keeps containers by namespace and ID.
		f = append(f, "--address", b.address, "--namespace", filepath.Base(b.dir))
	}
	return f
}

// result is the result of a command.
type result struct {
	code   int
	stdout string
	stderr string
	report report
}

// report is the part of a report, or of the output of ps, that the tests check.
type report struct {
	ExitCode int `json:"exitCode"`
	Pods     []struct {
		Name       string   `json:"name"`
		PodIPs     []string `json:"podIPs"`
		Containers []struct {
			State    string `json:"state"`
			ExitCode *int   `json:"exitCode"`
		} `json:"containers"`
	} `json:"pods"`
	Results []struct {
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
		Outcome    string `json:"outcome"`
		Reason     string `json:"reason"`
		Message    string `json:"message"`
		Restarts   int    `json:"restarts"`
		Containers []struct {
			Name     string   `json:"name"`
			State    string   `json:"state"`
			ExitCode *int     `json:"exitCode"`
			LogTail  []string `json:"logTail"`
		} `json:"containers"`
		Status struct {
			ContainerStatuses []struct {
				ContainerID string `json:"containerID"`
				StopSignal  string `json:"stopSignal"`
				State       struct {
					Running *struct {
						StartedAt string `json:"startedAt"`
					} `json:"running"`
				} `json:"state"`
			} `json:"containerStatuses"`
		} `json:"status"`
	} `json:"results"`
}

// outcomes are "name=Outcome" for each result.
func (r report) outcomes() []string {
	out := make([]string, 0, len(r.Results))
	for _, p := range r.Results {
		out = append(out, p.Name+"="+p.Outcome)
	}
	return out
}

// built returns the program and the directory of the archives of images.
func built(t testing.TB) (path, archives string) {
	t.Helper()
	path, err := program()
	if err == nil {
		archives, err = images()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, archives
}

// command returns a runonce command with the flags of the box.
func (b *box) command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	// The test's own context is already canceled when the cleanup runs.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, append(append([]string{name}, b.flags()...), args...)...)
	// No variable of the environment may select an engine.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir}
	return cmd
}

// run runs a command and waits for it.
func (b *box) run(t testing.TB, name string, args ...string) result {
	t.Helper()
	cmd := b.command(t, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", cmd, err)
	}
	return finished(t, cmd, stdout.String(), stderr.String())
}

func finished(t testing.TB, cmd *exec.Cmd, stdout, stderr string) result {
	t.Helper()
	r := result{code: cmd.ProcessState.ExitCode(), stdout: stdout, stderr: stderr}
	if strings.HasPrefix(stdout, "{") {
		if err := json.Unmarshal([]byte(stdout), &r.report); err != nil {
			t.Fatalf("%s: decoding the report: %v\n%s", cmd, err, stdout)
		}
	}
	return r
}

// up runs the pods of a directory and checks the exit code.
func (b *box) up(t testing.TB, dir string, code int, args ...string) result {
	t.Helper()
	r := b.run(t, "run", b.upArgs(t, dir, args...)...)
	if r.code != code {
		t.Fatalf("run: exit code %d, want %d\n%s\n%s", r.code, code, r.stdout, r.stderr)
	}
	if r.report.ExitCode != code {
		t.Errorf("the report says exit code %d, the program %d", r.report.ExitCode, code)
	}
	return r
}

func (b *box) upArgs(t testing.TB, dir string, args ...string) []string {
	t.Helper()
	archives, err := images()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(args, "--capacity") {
		args = append([]string{"--capacity", "cpu=8,memory=16Gi,pods=200"}, args...)
	}
	return append(append([]string{"-o", "json", "--settle", "100ms", "--images-dir", archives}, args...), dir)
}

// pod returns the manifest of a pod on the host network with one container of the box image.
func pod(name, policy string, args ...string) string {
	quoted, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: %s
  terminationGracePeriodSeconds: 2
  containers:
  - {name: main, image: localhost/box:1, args: %s}
`, name, policy, quoted)
}

// withHost mounts a directory of the machine on /host in the container of a pod.
func withHost(manifest, dir string) string {
	return strings.Replace(manifest, "args:", "volumeMounts: [{name: host, mountPath: /host}], args:", 1) +
		fmt.Sprintf("  volumes: [{name: host, hostPath: {path: %s}}]\n", dir)
}

// directory writes manifests into a new directory.
func directory(t testing.TB, manifests ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, m := range manifests {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)), []byte(m), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
