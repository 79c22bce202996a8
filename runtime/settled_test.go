package runtime_test

import (
	"syscall"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/record"
)

// TestSettled: a pod needs no Sync after one that did nothing, until something of it changes.
func TestSettled(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, n *node, p *runtime.Pods, pod *v1.Pod){
		"definition": func(t *testing.T, _ *node, p *runtime.Pods, pod *v1.Pod) {
			other := pod.DeepCopy()
			other.Labels = map[string]string{"version": "2"}
			if err := p.Update(t.Context(), other); err != nil {
				t.Error(err)
			}
		},
		"stopped by another process": func(t *testing.T, n *node, _ *runtime.Pods, pod *v1.Pod) {
			if err := n.pods(t.Context(), t).Stop(t.Context(), pod); err != nil {
				t.Error(err)
			}
		},
		"recorded by another process": func(t *testing.T, n *node, _ *runtime.Pods, pod *v1.Pod) {
			failed := &record.Failure{Reason: "Deadline", Message: "over"}
			if _, err := record.Open(n.root, n.root).Update(pod.UID, func(r *record.Pod) error { r.Failed = failed; return nil }); err != nil {
				t.Error(err)
			}
		},
		"container ends": func(t *testing.T, n *node, _ *runtime.Pods, pod *v1.Pod) {
			all, err := n.engine.Containers(t.Context(), string(pod.UID))
			if err != nil || len(all) != 2 {
				t.Fatal(all, err)
			}
			if err := n.engine.Stop(t.Context(), all[0].ID, syscall.SIGTERM, 0); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := n.pods(t.Context(), t)
				pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
				settled := func() bool {
					if _, err := p.Status(t.Context(), pod); err != nil {
						t.Fatal(err)
					}
					return p.Settled(pod)
				}
				if settled() {
					t.Error("settled before it was started")
				}
				for _, want := range []bool{false, true} {
					if err := p.Sync(t.Context(), pod); err != nil {
						t.Fatal(err)
					}
					if got := settled(); got != want {
						t.Errorf("settled = %t, want %t", got, want)
					}
				}
				if !p.Settled(pod) {
					t.Error("no longer settled, although nothing has changed")
				}
				change(t, n, p, pod)
				if settled() {
					t.Error("still settled")
				}
			})
		})
	}
}
