package cmd_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/cmd/backend"
)

// unfit is a machine that lacks what some pods need.
type unfit struct {
	openedMemory
	lacks func(pod *v1.Pod) bool
}

func (u *unfit) Check(pods []*v1.Pod) error {
	for _, pod := range pods {
		if u.lacks(pod) {
			return errors.New("install the package of " + pod.Name)
		}
	}
	return nil
}

// What the machine lacks is said before anything is started or stopped, and only if a pod that
// is to run needs it.
func TestMachineLacksProgram(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	u := &unfit{openedMemory: openedMemory{memory: m}}
	call := func(args ...string) invocation {
		t.Helper()
		machine := fstest.MapFS{
			"proc/meminfo": {Data: []byte("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")},
		}
		world := cmd.IO{Machine: machine, Open: func(context.Context, backend.Options) (backend.Engine, error) { return u, nil }}
		return invokeWith(t, world, append(args, "--root", m.root, "--state", filepath.Join(m.root, "state"))...)
	}
	old, done, web := manifest(t, "old", "Always", "[sleep]"), manifest(t, "done", "Never", "[exit, '0']"), manifest(t, "web", "Always", "[sleep]")
	lacks := func(name string) { u.lacks = func(pod *v1.Pod) bool { return pod.Name == name } }
	lacks("none")
	if got := call("run", "--until", "completed", old, done); got.code != 0 {
		t.Fatalf("code %d: %s", got.code, got.stderr)
	}

	lacks("web")
	for _, command := range []string{"plan", "run"} {
		got := call(command, "--prune", web)
		if got.code != 4 || !strings.Contains(got.stderr, "install the package of web") || got.stdout != "" {
			t.Errorf("%s: code %d, %q, %q", command, got.code, got.stderr, got.stdout)
		}
	}
	cs, err := m.engine.Containers(t.Context(), "")
	if err != nil || len(cs) != 2 {
		t.Errorf("%d containers, %v, want the 2 of the first run", len(cs), err)
	}
	if got := call("plan", "--capacity", "cpu=1", web); got.code != 0 {
		t.Errorf("a plan for another machine: code %d: %s", got.code, got.stderr)
	}

	lacks("done")
	if got := call("run", done); got.code != 0 {
		t.Errorf("a pod that has ended needs nothing: code %d: %s", got.code, got.stderr)
	}
	if got := call("run", "--rerun", done); got.code != 4 {
		t.Errorf("a pod that runs again: code %d: %s", got.code, got.stderr)
	}
}

// A capacity of which nothing is left for pods is explained.
func TestExhaustedCapacity(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	for capacity, warns := range map[string]bool{"memory=100Mi": true, "memory=101Mi": false, "cpu=1,memory=0": false} {
		got := invoke(t, m, "plan", "--node", nodeFile(), "--capacity", capacity, manifest(t, "web", "Always", "[sleep]"))
		if got.code != 0 || strings.Contains(got.stderr, "memory=100Mi leaves nothing for pods: like the kubelet") != warns {
			t.Errorf("%s: code %d, %q", capacity, got.code, got.stderr)
		}
	}
}
