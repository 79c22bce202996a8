package enginetest

import (
	"cmp"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// conformOutOfMemory: the kernel kills a child of the first process, which goes on, or with cgroup v2 both.
func conformOutOfMemory(t *testing.T, s Subject) {
	c := s.Config(t, "pod1", "job", "do", "oom 0", "sleep 200ms")
	memory := int64(32 << 20)
	c.Spec.Linux = cmp.Or(c.Spec.Linux, &specs.Linux{})
	c.Spec.Linux.Resources = cmp.Or(c.Spec.Linux.Resources, &specs.LinuxResources{})
	c.Spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &memory, Swap: &memory}
	if err := s.Engine.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	got := awaitExit(t, s.Engine, c.ID).Exit
	// Some shims tell it after the exit.
	for deadline := time.Now().Add(limit); !got.OOMKilled && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got = awaitExit(t, s.Engine, c.ID).Exit
	}
	if !got.OOMKilled || got.ExitCode != 0 && got.ExitCode != 137 {
		t.Errorf("exit = %+v, want code 0 or 137, and that it was OOM-killed", got)
	}
}
