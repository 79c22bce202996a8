package cmd_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/hack/daemon"
	"github.com/runonce/runonce/hack/testimages"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runtime/containerd"
)

// machine is a place for an engine of its own, which is empty again after the test.
type machine struct {
	world cmd.IO
	dir   string
	flags []string
}

// needRoot skips what cannot run here.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if testing.Short() {
		t.Skip("starts containers")
	}
}

// newMachine makes a machine that has the images of the directory; flags go with every
// command.
func newMachine(t *testing.T, images string, flags ...string) machine {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "rc-") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	// Root of a pod with users of its own is nobody here, and has to reach its root directory.
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	m := machine{
		world: cmd.IO{Getenv: func(string) string { return "" }, Machine: os.DirFS("/"), Open: cmd.OpenContainerd, Versions: containerd.LookUp},
		dir:   dir,
		flags: append([]string{"--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--log-dir", filepath.Join(dir, "log")}, flags...),
	}
	t.Cleanup(func() {
		m.clear(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	m.once(t, "images", "import", images)
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

// TestCasesOnContainerd plays the stories in real containers, on the embedded engine.
func TestCasesOnContainerd(t *testing.T) {
	needRoot(t)
	m := newMachine(t, boxImages(t))
	for name, s := range stories(t) {
		if s.only != "memory" {
			t.Run(name, func(t *testing.T) { m.play(t, s) })
		}
	}
}

// TestCasesOnDaemons plays stories on containerd daemons of this machine.
func TestCasesOnDaemons(t *testing.T) {
	needRoot(t)
	images := boxImages(t)
	scripted := []string{"happy", "crash-then-success", "never-exits-3", "init-fails", "command-missing", "changed-pod", "critical-preempts"}
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			m := newMachine(t, images, "--address", daemon.Serve(t, version).Socket)
			for name, s := range stories(t) {
				if s.only == "real" || s.only == string(version) || slices.Contains(scripted, name) {
					t.Run(name, func(t *testing.T) { m.play(t, s) })
				}
			}
		})
	}
}

// play plays a story and takes down what it leaves.
func (m machine) play(t *testing.T, s story) {
	t.Cleanup(func() { m.clear(t) })
	s.play(t, stage{io: m.world, flags: m.flags, logs: filepath.Join(m.dir, "log")})
}

// TestKilled: killed at any instant and run again, a run converges, and nothing is left
// after down.
func TestKilled(t *testing.T) {
	needRoot(t)
	images := boxImages(t)
	manifests := filepath.Join(casesDir, "happy", "manifests")
	for _, after := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond, 120 * time.Millisecond, 200 * time.Millisecond, 350 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			m := newMachine(t, images)
			args := append([]string{"run", manifests}, m.flags...)
			program := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
			program.Env = append(os.Environ(), asProgram+"=1")
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			if err := program.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			if err := program.Wait(); err == nil {
				t.Log("the run was over before it was killed")
			}
			out := m.once(t, "run", "--until", "completed", "-o", "json", manifests)
			var report struct {
				Results []struct{ Name, Outcome string } `json:"results"`
			}
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{"Succeeded", "Ready", "Ready"} {
				if report.Results[i].Outcome != want {
					t.Errorf("%s: %s, want %s\n%s", report.Results[i].Name, report.Results[i].Outcome, want, out)
				}
			}
		})
	}
}

// TestSideBySide: a second run beside a first becomes its client, and both end well.
func TestSideBySide(t *testing.T) {
	needRoot(t)
	m := newMachine(t, boxImages(t))
	happy, twice := filepath.Join(casesDir, "happy", "manifests"), filepath.Join(casesDir, "too-big", "manifests", "web.yaml")
	programs := make([]*exec.Cmd, 0, 4)
	for _, manifests := range []string{happy, twice, happy, twice} {
		p := exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{"run", manifests}, m.flags...)...)
		p.Env = append(os.Environ(), asProgram+"=1")
		p.Stdout, p.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	for _, p := range programs {
		if err := p.Wait(); err != nil {
			t.Errorf("%v: %v\n%s%s", p.Args, err, p.Stdout, p.Stderr)
		}
	}
}

// TestSignals: the real program ends by a signal with the right code, and removes what
// it was asked to remove.
func TestSignals(t *testing.T) {
	needRoot(t)
	m := newMachine(t, boxImages(t))
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		args := append([]string{"run", "--rm", "--until", "completed", "--log-level", "info", filepath.Join(casesDir, "timeout", "manifests")}, m.flags...)
		p := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
		p.Env = append(os.Environ(), asProgram+"=1")
		var out bytes.Buffer
		p.Stdout = &out
		stderr, err := p.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "still running") {
				if err := p.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
		}
		var exit *exec.ExitError
		if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != want || !strings.Contains(out.String(), "Canceled") {
			t.Errorf("%v: %v, want exit code %d\n%s", sig, err, want, &out)
		}
		if left := m.once(t, "ps"); strings.Count(left, "\n") > 1 {
			t.Errorf("%v: pods left:\n%s", sig, left)
		}
	}
}

// once runs a command that has to succeed.
func (m machine) once(t *testing.T, args ...string) string {
	t.Helper()
	return m.fails(t, 0, args...)
}

// fails runs a command that has to end with the exit code.
func (m machine) fails(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	world := m.world
	world.Stdout, world.Stderr, world.Stdin = &out, &errs, strings.NewReader("")
	if code := cmd.Main(testContext(), slices.Concat([]string{"runonce"}, args, m.flags), world); code != want {
		t.Errorf("runonce %s: exit code %d, want %d: %s", strings.Join(args, " "), code, want, &errs)
	}
	return out.String()
}

// clear takes everything down and fails the test when anything stays.
func (m machine) clear(t *testing.T) {
	t.Helper()
	m.once(t, "down", "--all")
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
	sum := sha256.Sum256([]byte(filepath.Join(dir, "root")))
	cgroups := "/sys/fs/cgroup/*/runonce-" + hex.EncodeToString(sum[:4])
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
