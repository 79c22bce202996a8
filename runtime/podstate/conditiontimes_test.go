package podstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/probe"
)

// Containers begin a minute before the epoch and end at the epoch; the pod began two before.
func TestTransitionTimes(t *testing.T) {
	t.Parallel()
	start := epoch.Add(-2 * time.Minute)
	begun, opinion := epoch.Add(-time.Minute), epoch.Add(-30*time.Second)
	const scheduled, initialized, ready = v1.PodScheduled, v1.PodInitialized, v1.PodReady
	tests := []struct {
		name   string
		policy v1.RestartPolicy
		states []string
		probed bool // a has a readiness probe that changed its mind
		want   map[v1.PodConditionType]time.Time
	}{
		{name: "new", policy: v1.RestartPolicyAlways, want: map[v1.PodConditionType]time.Time{scheduled: start, initialized: start, ready: start}},
		{
			name: "ready", policy: v1.RestartPolicyAlways, states: []string{"i=exit0", "s=running", "a=running"},
			want: map[v1.PodConditionType]time.Time{scheduled: start, initialized: epoch, ready: begun},
		},
		{
			name: "ready by its probe", policy: v1.RestartPolicyAlways, states: []string{"i=exit0", "s=running", "a=running"}, probed: true,
			want: map[v1.PodConditionType]time.Time{ready: opinion},
		},
		{
			name: "ended", policy: v1.RestartPolicyNever, states: []string{"i=exit0", "s=exit0", "a=exit0"},
			want: map[v1.PodConditionType]time.Time{ready: epoch, v1.PodReadyToStartContainers: epoch},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := withSidecars(aPod(tt.policy, "i,s;a"), "s")
			o := observed(pod, tt.policy == v1.RestartPolicyAlways, tt.states...)
			o.Record.Started = start
			if tt.probed {
				o.Probes = map[string]probe.Status{"a-0": {Started: true, Ready: true, Since: opinion}}
			}
			for _, c := range Status(o, epoch).Conditions {
				if want, ok := tt.want[c.Type]; ok && !c.LastTransitionTime.Time.Equal(want) {
					t.Errorf("%s %s since %s, want %s", c.Type, c.Status, c.LastTransitionTime, want)
				}
			}
		})
	}
}
