package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/cgroup"
)

const sliced = `apiVersion: v1
kind: Pod
metadata: {name: sliced}
spec:
  hostNetwork: true
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: localhost/box:1
    args: [trap]
    resources: {requests: {cpu: 100m}, limits: {cpu: 200m, memory: 64Mi}}
    readinessProbe: {exec: {command: [/bin/box, echo, here]}, periodSeconds: 1, timeoutSeconds: 100}
`

// scopes returns the processes of the containers in systemd scopes, by the scope's path.
func (b *box) scopes(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, path := range b.inspect(t).Cgroups {
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if pids := strings.Fields(string(text)); err == nil && len(pids) > 0 && strings.HasSuffix(path, ".scope") && !strings.HasSuffix(path, "-shims.scope") {
			found[path] = pids
		}
	}
	return found
}

// TestCgroupDriver: with --cgroup-driver systemd, if systemd is the init system, pods are
// slices and stay slices in later runs; otherwise nothing is started.
func TestCgroupDriver(t *testing.T) {
	everywhere(t, func(t *testing.T, b *box) {
		dir := directory(t, sliced)
		if cgroup.SystemdBooted() != nil {
			r := b.run(t, "run", b.upArgs(t, dir, "--cgroup-driver", "systemd", "--quiet")...)
			want := "cgroup driver systemd: systemd is not the first process of this machine: lstat /run/systemd/system: no such file or directory"
			if r.code != 4 || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, want) {
				t.Errorf("exit code %d, %q; want 4 and %q", r.code, r.stderr, want)
			}
			return
		}
		b.up(t, dir, 0, "--cgroup-driver", "systemd", "--until", "ready")
		b.wantScopes(t)
		// A running container is kept; a killed one is restarted in the same cgroup.
		b.up(t, dir, 0)
		b.killMain(t)
		b.up(t, dir, 0)
		b.wantScopes(t)
		if r := b.run(t, "down", "--all"); r.code != 0 {
			t.Errorf("down: exit code %d\n%s", r.code, r.stderr)
		}
		if left := b.scopes(t); len(left) > 0 {
			t.Errorf("scopes left: %v", left)
		}
	})
}

// wantScopes checks that the pod's two containers, one of which is the pause process, are in
// scopes of one slice in every hierarchy that has any.
func (b *box) wantScopes(t *testing.T) {
	t.Helper()
	count := map[string]int{}
	for path := range b.scopes(t) {
		count[filepath.Dir(path)]++
		limit, err := os.ReadFile(filepath.Join(path, "memory.max"))
		if err == nil && strings.Contains(path, "-main-") && string(limit) != "67108864\n" {
			t.Errorf("memory.max of %s is %q", path, limit)
		}
	}
	if len(count) == 0 {
		t.Errorf("no container is in a scope: %v", b.inspect(t).Cgroups)
	}
	for slice, n := range count {
		if n != 2 || !strings.Contains(slice, "-burstable.slice/") {
			t.Errorf("%d scopes with processes in %s, want 2 in one below the class of burstable pods", n, slice)
		}
	}
}

func (b *box) killMain(t *testing.T) {
	t.Helper()
	killed := map[string]bool{}
	for path, pids := range b.scopes(t) {
		if !strings.Contains(path, "-main-") || killed[pids[0]] {
			continue
		}
		pid, err := strconv.Atoi(pids[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed[pids[0]] = true
	}
	if len(killed) != 1 {
		t.Fatalf("killed %v, want one process", killed)
	}
}
