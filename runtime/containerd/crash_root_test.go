package containerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/containerd"
)

// TestKilledWhileStarting kills a process at many moments of its starts, and wants the
// next one to clean up and to be able to start the same containers.
func TestKilledWhileStarting(t *testing.T) {
	p := newTestDirs(t)
	if err := p.openWithBox(t).Close(); err != nil {
		t.Fatal(err)
	}
	const n = 4
	for round := range 12 {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "sleep")
		cmd.Env = append(os.Environ(), helperEnv+"="+p.dir, helperEnv+"_MANY="+fmt.Sprint(n))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+round*15) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()

		e := p.open(t, t.Context())
		all, err := e.Containers(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 {
			// What does not run can be started, though perhaps not at the first try: calls of the
			// killed process may still be at work.
			for i := range n {
				id := fmt.Sprintf("many-%d", i)
				if c, ok := find(t, e, id); ok && c.State == "Running" {
					continue
				}
				if err := startAtLast(t, e, p.box(t, id, "sleep")); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}
			if all, err = e.Containers(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range all {
			if err := e.Remove(t.Context(), c.ID); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if left := leftovers(t, p); left != "" {
			t.Fatalf("round %d: left:\n%s", round, left)
		}
	}
}

// startAtLast starts the container as the runtime does: again after an error that may pass.
func startAtLast(t *testing.T, e *containerd.Engine, c engine.ContainerConfig) error {
	t.Helper()
	for tries := 0; ; tries++ {
		err := e.Start(t.Context(), c)
		if err == nil || tries == 10 || failure.IsPermanent(err) {
			return err
		}
		t.Logf("try %d: %v", tries, err)
		time.Sleep(time.Second)
	}
}
