package runtime_test

import (
	"errors"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/record"
)

// TestReset: a pod that is removed to be started again stays that of its run, so that other processes
// know of it, and is not started again once one of them has stopped it.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyNever, "exit 1")
		run, others := n.records.NewRun(), record.Open(n.root, n.root).NewRun()
		if err := errors.Join(run.Enter(t.Context()), run.Reserve([]*v1.Pod{pod}), run.Leave()); err != nil {
			t.Fatal(err)
		}
		p := n.pods(t.Context(), t)
		for _, step := range []func() error{
			func() error { return p.Reset(t.Context(), pod) }, // before it has started
			func() error { return p.Sync(t.Context(), pod) },
			func() error { return p.Reset(t.Context(), pod) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
			if reserved, err := others.Reserved(); err != nil || len(reserved) != 1 {
				t.Errorf("reserved: %d, %v", len(reserved), err)
			}
		}
		if all, err := n.engine.Containers(t.Context(), ""); err != nil || len(all) != 0 {
			t.Errorf("left: %d containers, %v", len(all), err)
		}
		if err := errors.Join(p.Sync(t.Context(), pod), others.Revoke(pod, nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var lost *record.LostError
		if err := p.Reset(t.Context(), pod); !errors.As(err, &lost) {
			t.Errorf("of a pod that another process has taken: %v", err)
		}
		if err := p.Sync(t.Context(), pod); !errors.As(err, &lost) {
			t.Errorf("then: %v", err)
		}
		if err := errors.Join(p.Stop(t.Context(), pod), run.Close()); err != nil {
			t.Error(err)
		}
	})
}
