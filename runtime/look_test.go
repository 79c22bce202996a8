package runtime_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// switched is an engine whose commands fail or do not.
type switched struct {
	*enginetest.Engine
	fails *atomic.Bool
}

func (s switched) Exec(context.Context, string, []string) (engine.ExecResult, error) {
	if s.fails.Load() {
		return engine.ExecResult{ExitCode: 1}, nil
	}
	return engine.ExecResult{}, nil
}

// TestListed: a process that only looks knows whether the pods of another one are ready, and when that changes.
func TestListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pod := newNode(t), testPod(v1.RestartPolicyAlways, "sleep")
		probe := execProbe("check")
		probe.PeriodSeconds, probe.FailureThreshold = 5, 1
		pod.Spec.Containers[0].ReadinessProbe = probe
		ctx, cancel := context.WithCancel(t.Context())
		if err := n.pods(ctx, t).Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		cancel()
		fails := &atomic.Bool{}
		later := n.podsOn(t.Context(), t, switched{n.engine, fails})
		ready := func() bool {
			t.Helper()
			known, err := later.Known(false)
			if err != nil || len(known) != 1 {
				t.Fatalf("%d pods, %v", len(known), err)
			}
			if _, err := later.Listed(t.Context(), known[0], true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			now, err := later.Listed(t.Context(), known[0], true)
			if err != nil || now.UID != pod.UID || now.Status.Phase != v1.PodRunning {
				t.Fatalf("%+v, %v", now, err)
			}
			return podspec.IsReady(now.Status)
		}
		if !ready() {
			t.Error("not ready")
		}
		fails.Store(true)
		if ready() {
			t.Error("ready although the probe fails")
		}
	})
}
