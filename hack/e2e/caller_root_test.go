package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/runonce/runonce/runtime/cgroup"
)

// TestCallersCgroup: nothing stays in the cgroup of a run that has ended, and nothing in that of the shims when
// there are no pods.
func TestCallersCgroup(t *testing.T) {
	b := newBox(t, "")
	var dirs []string
	for _, controller := range []string{"", "unified", "memory", "pids", "freezer", "systemd"} {
		root := filepath.Join(cgroup.Root, controller)
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
			dirs = append(dirs, filepath.Join(root, "caller-"+filepath.Base(b.dir)))
		}
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // after the shims have ended
	}
	enter := `for dir in $1; do echo $$ >$dir/cgroup.procs || exit 99; done; shift; exec "$@"`
	first, last := directory(t, pod("a", "Always", "sleep")), directory(t, pod("b", "Always", "sleep"))
	cmd := b.command(t, "run", append(b.upArgs(t, first), last)...)
	inside := exec.CommandContext(t.Context(), "sh", append([]string{"-c", enter, "sh", strings.Join(dirs, " ")}, cmd.Args...)...)
	inside.Env = cmd.Env
	if out, err := inside.CombinedOutput(); err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	for _, dir := range dirs {
		if left, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || len(left) > 0 {
			t.Errorf("%v: the processes %q are left in %s", err, left, dir)
		}
	}
	// The first pod to go leaves the cgroup to the other.
	for _, arg := range []string{first, last} {
		if r := b.run(t, "down", arg); r.code != 0 {
			t.Errorf("down: exit code %d\n%s", r.code, r.stderr)
		}
	}
	b.unchanged(t)
}

// TestCallerIsStopped: a pod runs on when the service of its run is stopped, with all that is in the service's
// cgroup, and when systemd reads its units again.
func TestCallerIsStopped(t *testing.T) {
	inSystemd(t)
	for _, driver := range []string{cgroup.DriverCgroupfs, cgroup.DriverSystemd} {
		t.Run(driver, func(t *testing.T) {
			b := newBox(t, "")
			dir := directory(t, pod("a", "Always", "sleep"))
			for _, name := range []string{"one", "two"} { // the second run finds the cgroup
				unit := name + "-" + filepath.Base(b.dir) + ".service"
				if name == "two" {
					dir = directory(t, pod("b", "Always", "sleep"))
				}
				cmd := b.command(t, "run", b.upArgs(t, dir, "--cgroup-driver", driver)...)
				args := []string{
					"--unit=" + unit, "--service-type=oneshot", "--remain-after-exit", "--property=DefaultDependencies=no",
					"--property=MemoryMax=500M", "--setenv=PATH=" + os.Getenv("PATH"),
				}
				if out, err := exec.CommandContext(t.Context(), "systemd-run", append(args, cmd.Args...)...).CombinedOutput(); err != nil {
					t.Fatalf("systemd-run: %v\n%s", err, out)
				}
				before := b.processes(t)
				systemctl(t, "daemon-reload")
				systemctl(t, "stop", unit)
				if after := b.processes(t); len(after) < 2 || !slices.Equal(before, after) {
					t.Errorf("after the stop of %s there are the processes\n%q, before\n%q", unit, after, before)
				}
			}
			for _, p := range b.processes(t) {
				pid, _, _ := strings.Cut(p, " ")
				if in, err := os.ReadFile("/proc/" + pid + "/cgroup"); err != nil || strings.Contains(string(in), "two-") {
					t.Errorf("%v: process %s is in %s", err, p, in)
				}
			}
		})
	}
}
