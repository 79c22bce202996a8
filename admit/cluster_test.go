package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestUnschedulable(t *testing.T) {
	t.Parallel()
	tainted := func(key string, effect v1.TaintEffect) *v1.Node {
		n := node("cpu=4,memory=8Gi")
		n.Spec.Taints = []v1.Taint{{Key: key, Effect: effect}}
		return n
	}
	labeled := node("cpu=4,memory=8Gi")
	labeled.Labels["disk"] = "ssd"
	small, large := node("cpu=1,memory=1Gi"), node("cpu=64,memory=8Gi,vendor.example/gpu=1")
	selects := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	for _, test := range []struct {
		name  string
		pod   *v1.Pod
		nodes []*v1.Node
		want  string
	}{
		{"no nodes", pod("a", 0, "cpu=99"), nil, ""},
		{"fits", pod("a", 0, "cpu=2"), []*v1.Node{small, large}, ""},
		{
			"too large", pod("a", 0, "cpu=65,memory=9Gi"),
			[]*v1.Node{small, large},
			"0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory.",
		},
		{"a resource that no node has yet", pod("a", 0, "vendor.example/fpga=1"), []*v1.Node{small}, ""},
		{"too much of one that a node has", pod("a", 0, "vendor.example/gpu=2"), []*v1.Node{large}, "0/1 nodes are available: 1 Insufficient vendor.example/gpu."},
		{
			"different reasons", pod("a", 0, "cpu=65", selects),
			[]*v1.Node{small, labeled, tainted("dedicated", v1.TaintEffectNoSchedule)},
			"0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s).",
		},
		{"prefers to keep away", pod("a", 0, "cpu=1"), []*v1.Node{tainted("busy", v1.TaintEffectPreferNoSchedule)}, ""},
		{"tolerated", pod("a", 0, "cpu=1", func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		}), []*v1.Node{tainted("dedicated", v1.TaintEffectNoExecute)}, ""},
		{"a node that is not ready may become so", pod("a", 0, "cpu=1"), []*v1.Node{tainted("node.kubernetes.io/not-ready", v1.TaintEffectNoSchedule)}, ""},
		{"a node that a cloud provider has not initialized", pod("a", 0, "cpu=1"), []*v1.Node{tainted("node.cloudprovider.kubernetes.io/uninitialized", v1.TaintEffectNoSchedule)}, ""},
		{"for another scheduler", pod("a", 0, "cpu=99", func(p *v1.Pod) { p.Spec.SchedulerName = "mine" }), []*v1.Node{small}, ""},
		{"names its node", pod("a", 0, "cpu=99", func(p *v1.Pod) { p.Spec.NodeName = "here" }), []*v1.Node{small}, ""},
		{
			"names another node", pod("a", 0, "cpu=1", func(p *v1.Pod) { p.Spec.NodeName = "there" }),
			[]*v1.Node{small},
			"0/1 nodes are available: 1 node(s) didn't match the requested node name.",
		},
	} {
		if got := Unschedulable(test.pod, test.nodes); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestRefused: what the cluster refuses is rejected, and nothing else, whatever the node. Pods that
// run already are kept, changed ones are replaced.
func TestRefused(t *testing.T) {
	t.Parallel()
	elsewhere := pod("selects", 0, "cpu=99", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "node"} })
	running := []*v1.Pod{pod("kept", 0, "cpu=1"), pod("changed", 0, "cpu=1", func(p *v1.Pod) { p.UID = "before" }), pod("other", 0, "cpu=1")}
	pods := []*v1.Pod{elsewhere, pod("kept", 0, "cpu=1"), pod("changed", 0, "cpu=2"), pod("refused", 2_000_000_000, "cpu=1")}
	refused := map[types.UID]Reason{"uid-refused": {"Forbidden", "exceeded quota"}, "uid-kept": {"Forbidden", "now"}}
	plan := Decide(&v1.Node{}, running, pods, Options{Refused: refused})
	want := []row{
		{Name: "selects", Verdict: Admitted},
		{Name: "kept", Verdict: Admitted, Running: true},
		{Name: "changed", Verdict: Admitted, Replaces: "changed"},
		{Name: "refused", Verdict: Rejected},
	}
	got := rows(plan)
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i].Name != want[i].Name || got[i].Verdict != want[i].Verdict || got[i].Running != want[i].Running || (got[i].Replaces == "") != (want[i].Replaces == "") {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	if d := plan.Decisions[3]; d.Reason != "Forbidden" || d.Message != "exceeded quota" {
		t.Errorf("%+v", d)
	}
}
