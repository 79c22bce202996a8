package runonce_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runonce"
)

// TestNotes: a pod at its goal has its note, in progress, in its result and in what the runtime keeps, unless there is
// something else to say. Other pods have none.
func TestNotes(t *testing.T) {
	t.Parallel()
	oom := with(v1.PodRunning, up(), v1.ContainerStatus{Name: "d", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "OOMKilled"}}})
	for _, c := range []struct {
		name   string
		script script
		uid    types.UID
		want   string
	}{
		{"running", runs(), "uid-a", "a Running RolledBack: it was bad"},
		{"succeeded", script{timeline: []moment{{0, with(v1.PodSucceeded, ended(0))}}}, "uid-a", "a Succeeded RolledBack: it was bad"},
		{"late", script{timeline: []moment{{0, with(v1.PodRunning, crashed(0))}, {time.Second, with(v1.PodRunning, restarted(up(), 1))}}}, "uid-a", "a Running RolledBack: it was bad"},
		{"something else to say", script{timeline: []moment{{0, oom}}}, "uid-a", `a Running OOMKilled: container "d" exited with code 0, but one of its processes was OOM-killed`},
		{"failed", script{timeline: []moment{{0, with(v1.PodFailed, ended(3))}}}, "uid-a", `a Failed Error: container "c" exited with code 3`},
		{"of another one", runs(), "uid-b", "a Running : "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rt := &concluding{fake: &fake{scripts: map[string]script{"a": c.script}}}
				var last runonce.Progress
				got := runonce.Run(t.Context(), rt, admitted(newPod("a", v1.RestartPolicyNever)), runonce.Options{
					Notes:    map[types.UID]runonce.Note{c.uid: {Reason: "RolledBack", Message: "it was bad"}},
					Progress: func(e runonce.Progress) { last = e },
				})[0]
				rt.check(t, c.want)
				want(t, "result", "a "+string(got.Outcome)+" "+got.Reason+": "+got.Message, c.want)
				want(t, "progress", "a "+last.State+" "+last.Reason+": "+last.Message, c.want)
			})
		})
	}
}
