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

// TestLookAll: a process that only looks knows whether the pods of another one are ready, and when that changes.
func TestLookAll(t *testing.T) {
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
			if _, err := later.LookAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			pods, err := later.LookAll(t.Context())
			if err != nil || len(pods) != 1 {
				t.Fatalf("%d pods, %v", len(pods), err)
			}
			return podspec.IsReady(pods[0].Status)
		}
		if !ready() {
			t.Error("not ready")
		}
		fails.Store(true)
		if ready() {
			t.Error("ready although the probe fails")
		}
		found, ok, err := later.Find(t.Context(), pod.Namespace, pod.Name)
		if err != nil || !ok || found.UID != pod.UID || found.Status.Phase != v1.PodRunning {
			t.Errorf("found %t, %v", ok, err)
		}
		if _, ok, err := later.Find(t.Context(), "other", pod.Name); ok || err != nil {
			t.Errorf("in another namespace: found %t, %v", ok, err)
		}
	})
}
