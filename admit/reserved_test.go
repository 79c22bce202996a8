package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestReserved: the resources of what another run is about to start count as used.
func TestReserved(t *testing.T) {
	t.Parallel()
	big := func(name string, prio int32) *v1.Pod { return pod(name, prio, "memory=600Mi") }
	web := func(uid types.UID, memory string) *v1.Pod {
		return pod("web", 0, "memory="+memory, func(p *v1.Pod) { p.UID = uid })
	}
	tests := []struct {
		name              string
		running, reserved []*v1.Pod
		pod               *v1.Pod
		prune             bool
		want              Verdict
		reason            string
		keeps             bool
	}{
		{name: "not enough left", reserved: []*v1.Pod{big("a", 0)}, pod: big("b", 0), want: Rejected, reason: "OutOfmemory"},
		{name: "nor for a critical pod", reserved: []*v1.Pod{big("a", 0)}, pod: big("b", SystemCritical), want: Rejected, reason: "UnexpectedAdmissionError"},
		{name: "which preempts it once it runs", running: []*v1.Pod{big("a", 0)}, reserved: []*v1.Pod{big("a", 0)}, pod: big("b", SystemCritical), want: Admitted},
		{name: "counted once", running: []*v1.Pod{web("u", "300Mi")}, reserved: []*v1.Pod{web("u", "300Mi"), web("u", "300Mi")}, pod: big("b", 0), want: Admitted},
		{name: "the same pod", reserved: []*v1.Pod{big("a", 0)}, pod: big("a", 0), want: Admitted, keeps: true},
		{name: "other content", reserved: []*v1.Pod{web("u", "600Mi")}, pod: web("v", "601Mi"), want: Admitted},
		{name: "other content of one that runs", running: []*v1.Pod{web("u", "600Mi")}, reserved: []*v1.Pod{web("u", "600Mi")}, pod: web("v", "601Mi"), want: Admitted},
		{name: "not pruned", reserved: []*v1.Pod{big("a", 0)}, pod: big("b", 0), prune: true, want: Rejected, reason: "OutOfmemory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			plan := Decide(node("memory=1000Mi"), tt.running, []*v1.Pod{tt.pod}, Options{Reserved: tt.reserved, Prune: func(*v1.Pod) bool { return tt.prune }})
			d := plan.Decisions[0]
			if d.Verdict != tt.want || d.Reason != tt.reason || d.Running != tt.keeps {
				t.Errorf("%s %q, running %t: %s", d.Verdict, d.Reason, d.Running, d.Message)
			}
			used := plan.Used[v1.ResourceMemory]
			if used.CmpInt64(1000<<20) > 0 {
				t.Errorf("%s used", used.String())
			}
		})
	}
}
