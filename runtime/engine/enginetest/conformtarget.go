package enginetest

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/runtime/engine"
)

// conformTarget: a container may run in the process namespace of another one. Its end is its own, and has the right exit
// code; when the other one ends, so does it.
func conformTarget(t *testing.T, s Subject) {
	target := start(t, s, "pod1", "target", "sleep")
	at, _ := find(t, s.Engine, target.ID)
	beside := func(name string, args ...string) string {
		t.Helper()
		c := s.Config(t, "pod1", name, args...)
		c.Spec.Linux = cmp.Or(c.Spec.Linux, &specs.Linux{})
		others := slices.DeleteFunc(c.Spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == specs.PIDNamespace })
		c.Spec.Linux.Namespaces = append(others, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: fmt.Sprintf("/proc/%d/ns/pid", at.PID)})
		if err := s.Engine.Start(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c.ID
	}
	ends, stopped, stays := beside("ends", "exit", "3"), beside("stopped", "stay"), beside("stays", "stay")
	if got := awaitExit(t, s.Engine, ends).Exit; got.ExitCode != 3 {
		t.Errorf("the exit of one: %+v", got)
	}
	if err := s.Engine.Stop(t.Context(), stopped, syscall.SIGKILL, 0); err != nil {
		t.Error(err)
	}
	for _, id := range []string{target.ID, stays} {
		if c, _ := find(t, s.Engine, id); c.State != engine.StateRunning {
			t.Errorf("container %q is %s after the end of others", c.Name, c.State)
		}
	}
	if err := s.Engine.Stop(t.Context(), target.ID, syscall.SIGKILL, 0); err != nil {
		t.Error(err)
	}
	if got := awaitExit(t, s.Engine, stays).Exit; got.ExitCode != 128+int32(syscall.SIGKILL) {
		t.Errorf("the exit of one with its target: %+v", got)
	}
}
