package enginetest

import (
	stdcmp "cmp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// conformOutOfMemory: the kernel kills a child of the first process, which goes on, or with cgroup v2 both.
func conformOutOfMemory(t *testing.T, s Subject) {
	c := s.Config(t, "pod1", "job", "do", "oom 0", "sleep 200ms")
	memory := int64(32 << 20)
	c.Spec.Linux = stdcmp.Or(c.Spec.Linux, &specs.Linux{})
	c.Spec.Linux.Resources = stdcmp.Or(c.Spec.Linux.Resources, &specs.LinuxResources{})
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
	if got.Usage.Killed() == 0 {
		t.Errorf("usage = %+v, want at least one OOM kill", got.Usage)
	}
}

// conformUsage: what a container has used is part of its exit, also for a process that comes later.
func conformUsage(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "job", "do", "burn 50ms", "exit 3")
	used := awaitExit(t, s.Engine, c.ID).Exit.Usage
	switch {
	case used.CPUSeconds == nil || *used.CPUSeconds <= 0:
		t.Errorf("usage = %+v, want time of processors", used)
	case used.PeakMemoryBytes != nil && *used.PeakMemoryBytes <= 0:
		t.Errorf("usage = %+v, want memory or nothing about it", used)
	case used.OOMKills == nil || *used.OOMKills != 0:
		t.Errorf("usage = %+v, want no OOM kills", used)
	}
	later := awaitExit(t, s.Reopen(t, func() {}), c.ID).Exit.Usage
	if diff := cmp.Diff(used, later); diff != "" {
		t.Errorf("a later process finds something else:\n%s", diff)
	}
}
