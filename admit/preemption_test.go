package admit

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// The pods of the kubelet's own tests (pkg/kubelet/preemption/preemption_test.go).
func kubeletPods() map[string]*v1.Pod {
	return map[string]*v1.Pod{
		"tiny":                    pod("tiny", 0, "cpu=1m,memory=1Mi"),
		"best-effort":             pod("best-effort", 0, ""),
		"cluster-critical":        pod("cluster-critical", SystemCritical, "cpu=100m,memory=100Mi"),
		"node-critical":           pod("node-critical", SystemCritical+1000, "cpu=100m,memory=100Mi"),
		"burstable":               pod("burstable", 0, "cpu=100m,memory=100Mi"),
		"high-request-burstable":  pod("high-request-burstable", 0, "cpu=300m,memory=300Mi"),
		"guaranteed":              pod("guaranteed", 0, "cpu=100m,memory=100Mi", limits),
		"high-request-guaranteed": pod("high-request-guaranteed", 0, "cpu=300m,memory=300Mi", limits),
	}
}

// TestKubeletPreemption compares the choice of victims with the kubelet's tables. The
// resources that are missing in its cases are requests of the preemptor here, on a full node.
func TestKubeletPreemption(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		preemptor string
		running   []string
		lacks     string // cpu and memory beyond the node that the running pods fill
		pods      int    // pods beyond those that the node allows
		want      []string
		rejected  string
	}{
		{name: "no requirements", preemptor: "cluster-critical", want: nil},
		{name: "no pods", preemptor: "cluster-critical", pods: 1, rejected: "UnexpectedAdmissionError"},
		{name: "equal pods and resources requirements", preemptor: "cluster-critical", running: []string{"burstable"}, lacks: "cpu=100m,memory=100Mi", pods: 1, want: []string{"burstable"}},
		{name: "higher requirements than pod requests", preemptor: "cluster-critical", running: []string{"burstable"}, lacks: "cpu=200m,memory=200Mi", rejected: "UnexpectedAdmissionError"},
		{name: "choose between bestEffort and burstable", preemptor: "cluster-critical", running: []string{"burstable", "best-effort"}, pods: 1, want: []string{"best-effort"}},
		{name: "choose between burstable and guaranteed", preemptor: "cluster-critical", running: []string{"burstable", "guaranteed"}, pods: 1, want: []string{"burstable"}},
		{name: "choose lower request burstable if it meets requirements", preemptor: "cluster-critical", running: []string{"best-effort", "high-request-burstable", "burstable"}, lacks: "cpu=100m,memory=100Mi", want: []string{"burstable"}},
		{name: "choose higher request burstable if lower does not meet requirements", preemptor: "cluster-critical", running: []string{"best-effort", "burstable", "high-request-burstable"}, lacks: "cpu=150m,memory=150Mi", want: []string{"high-request-burstable"}},
		{name: "multiple pods required", preemptor: "cluster-critical", running: []string{"best-effort", "burstable", "high-request-burstable", "guaranteed", "high-request-guaranteed"}, lacks: "cpu=350m,memory=350Mi", want: []string{"burstable", "high-request-burstable"}},
		{name: "evict guaranteed when we have to, and dont evict the extra burstable", preemptor: "cluster-critical", running: []string{"best-effort", "burstable", "high-request-burstable", "guaranteed", "high-request-guaranteed"}, lacks: "memory=550Mi", want: []string{"high-request-burstable", "high-request-guaranteed"}},
		{name: "evict cluster critical pod for node critical pod", preemptor: "node-critical", running: []string{"cluster-critical"}, lacks: "cpu=100m", want: []string{"cluster-critical"}},
		{name: "can not evict node critical pod for cluster critical pod", preemptor: "cluster-critical", running: []string{"node-critical"}, lacks: "cpu=100m", rejected: "UnexpectedAdmissionError"},
		{name: "critical pods cannot be preempted", preemptor: "cluster-critical", running: []string{"cluster-critical"}, pods: 1, rejected: "UnexpectedAdmissionError"},
		{name: "non-critical pod should not trigger eviction", preemptor: "guaranteed", running: []string{"burstable"}, lacks: "memory=1Mi", rejected: "OutOfmemory"},
		{name: "best effort pods are not preempted when attempting to free resources", preemptor: "cluster-critical", running: []string{"best-effort"}, lacks: "memory=1Mi", rejected: "UnexpectedAdmissionError"},
		{name: "multiple pods evicted", preemptor: "cluster-critical", running: []string{"cluster-critical", "best-effort", "burstable", "high-request-burstable", "guaranteed", "high-request-guaranteed"}, lacks: "memory=550Mi", want: []string{"high-request-burstable", "high-request-guaranteed"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			pods := kubeletPods()
			var running []*v1.Pod
			for _, name := range test.running {
				p := pods[name]
				p.Name, p.UID = "running-"+name, "running-"+p.UID
				running = append(running, p)
			}
			full := Decide(node("cpu=100,memory=100Gi"), running, nil, Options{}).Used
			asks := kubeletPods()[test.preemptor]
			lacks, err := ParseResources(test.lacks)
			if err != nil {
				t.Fatal(err)
			}
			asks.Spec.Containers[0].Resources.Requests = lacks
			if test.pods == 0 {
				full[v1.ResourcePods] = node("").Status.Allocatable[v1.ResourcePods]
			}
			n := node("")
			n.Status.Allocatable = full

			plan := Decide(n, running, []*v1.Pod{asks}, Options{})
			if got := plan.Decisions[0].Reason; got != test.rejected {
				t.Errorf("reason %q, want %q", got, test.rejected)
			}
			if diff := cmp.Diff(test.want, victims(plan)); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

// victims returns the sorted names of the preempted pods, without "running-".
func victims(plan Plan) []string {
	var names []string
	for _, d := range plan.Decisions {
		if d.Verdict == Preempted {
			name := d.Pod.Name
			if len(name) > 8 && name[:8] == "running-" {
				name = name[8:]
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func TestPreemptedDecision(t *testing.T) {
	t.Parallel()
	victim := pod("victim", 10, "cpu=1")
	asks := pod("asks", SystemCritical, "cpu=1")
	plan := Decide(node("cpu=1"), []*v1.Pod{victim}, []*v1.Pod{asks}, Options{})
	want := []Decision{
		{Pod: asks, Verdict: Admitted},
		{
			Pod: victim, Verdict: Preempted, Reason: "Preempting", Message: "Preempted in order to admit critical pod",
			Reasons: []Reason{{"Preempting", "Preempted in order to admit critical pod"}}, By: asks, Lacked: v1.ResourceCPU, Running: true,
		},
	}
	if diff := cmp.Diff(want, plan.Decisions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !plan.Optimal {
		t.Error("not proven")
	}
}

func TestPreemptsForPorts(t *testing.T) {
	t.Parallel()
	web := hostPort("", v1.ProtocolTCP, 80)
	tests := []struct {
		name    string
		running []*v1.Pod
		want    []string
		verdict Verdict
	}{
		{"the holder of the port", []*v1.Pod{pod("a", 0, "", web), pod("b", 0, "cpu=500m")}, []string{"a"}, Admitted},
		{"the holder of the port, which frees enough", []*v1.Pod{pod("a", 5, "cpu=500m", web), pod("b", 0, "cpu=500m")}, []string{"a"}, Admitted},
		{"the holder of the port, and one for the missing resources", []*v1.Pod{pod("a", 0, "cpu=100m", web), pod("b", 0, "cpu=900m")}, []string{"a", "b"}, Admitted},
		{"all who hold it", []*v1.Pod{pod("a", 0, "", hostPort("10.0.0.1", "TCP", 80)), pod("b", 0, "", hostPort("10.0.0.2", "TCP", 80))}, []string{"a", "b"}, Admitted},
		{"not one that is as critical", []*v1.Pod{pod("a", SystemCritical, "", web)}, nil, Rejected},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// The socket is the running pod's own.
			listening := Options{Listening: []Listener{{HostPort: HostPort{Protocol: v1.ProtocolTCP, Port: 80}}}}
			plan := Decide(node("cpu=1"), test.running, []*v1.Pod{pod("p", SystemCritical, "cpu=500m", web)}, listening)
			if diff := cmp.Diff(test.want, victims(plan)); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
			if got := plan.Decisions[0].Verdict; got != test.verdict {
				t.Errorf("verdict %s, want %s: %+v", got, test.verdict, plan.Decisions[0])
			}
		})
	}
}

func TestVictimsByPriorityFirst(t *testing.T) {
	t.Parallel()
	running := []*v1.Pod{pod("big", 100, "cpu=2"), pod("small", 0, "cpu=1"), pod("other", 0, "cpu=1")}
	plan := Decide(node("cpu=4"), running, []*v1.Pod{pod("p", SystemCritical, "cpu=2")}, Options{})
	if diff := cmp.Diff([]string{"other", "small"}, victims(plan)); diff != "" {
		t.Errorf("two of a low priority go before one of a higher (-want +got):\n%s", diff)
	}
}
