package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCorrectClock: where the clock of a node is wrong, a container counts from when it was seen to start;
// one that ran before this run counts from its own time, however often its pod changes.
func TestCorrectClock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		runsAtFirst bool
		started     time.Duration // by its status, from when it is seen
		want        time.Duration
	}{
		"right clock":   {started: -time.Second, want: -time.Second},
		"behind":        {started: -time.Hour},
		"ahead":         {started: time.Hour},
		"ran for hours": {runsAtFirst: true, started: -time.Hour, want: -time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
			running := pod.DeepCopy()
			running.Status.ContainerStatuses = []v1.ContainerStatus{{
				ContainerID: "a", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(test.started))}},
			}}
			var tr trace
			if !test.runsAtFirst {
				tr.state(pod)
			}
			tr.state(running)
			time.Sleep(time.Minute)
			tr.state(running)
			st := running.DeepCopy().Status
			tr.correctClock(pod.UID, &st)
			if got := st.ContainerStatuses[0].State.Running.StartedAt.Sub(now); got != test.want {
				t.Errorf("%s: %v, want %v", name, got, test.want)
			}
		})
	}
}
