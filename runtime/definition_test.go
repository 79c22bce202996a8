package runtime_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// TestDefinition: a pod is what it was started as, until a Sync has another definition of it.
func TestDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		const other = "localhost/other:1"
		n.engine.Store[other] = engine.Image{Ref: other, ID: "sha256:3", Entrypoint: []string{"/bin/box"}}
		first := testPod(v1.RestartPolicyAlways, "stay", "stay")
		first.Spec.TerminationGracePeriodSeconds = new(int64(20))
		ctx, end := context.WithCancel(t.Context())
		if err := n.pods(ctx, t).Sync(ctx, first); err != nil {
			t.Fatal(err)
		}
		end()

		second := testPod(v1.RestartPolicyAlways, "stay")
		second.Spec.Containers[0].Image = other
		second.Spec.TerminationGracePeriodSeconds = new(int64(5))
		p := n.pods(t.Context(), t)
		wantStates(t.Context(), t, p, second, "c0=running", "c1=running")
		if err := p.Sync(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		s := wantStates(t.Context(), t, p, first, "c0=running")
		if image := s.ContainerStatuses[0].Image; image != other || s.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("after Sync with another image: %s, %d restarts", image, s.ContainerStatuses[0].RestartCount)
		}
		begin := time.Now()
		if err := p.Stop(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("Stop took %s, want the grace period of the definition that was recorded last", took)
		}
		n.left(t)
	})
}

// TestNeverStarted: a pod that was admitted and never started is what its first Sync says.
func TestNeverStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		admitted, pod := testPod(v1.RestartPolicyAlways, "crash"), testPod(v1.RestartPolicyAlways, "sleep")
		run := n.records.NewRun()
		if err := run.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := run.Reserve([]*v1.Pod{admitted}); err != nil {
			t.Fatal(err)
		}
		p := n.pods(t.Context(), t)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		wantStates(t.Context(), t, p, admitted, "c0=running")
		if all, err := p.List(t.Context()); err != nil || len(all) != 1 || all[0].Spec.Containers[0].Args[0] != "sleep" {
			t.Errorf("listed: %v, %v", all, err)
		}
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
}
