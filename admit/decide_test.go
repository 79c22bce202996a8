package admit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod returns a pod that requests the given resources.
func everyPod(*v1.Pod) bool { return true }

func pod(name string, priority int32, requests string, change ...func(*v1.Pod)) *v1.Pod {
	list, err := ParseResources(requests)
	if err != nil {
		panic(err)
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			Priority:   &priority,
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: list}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// node returns a node of which pods may have the given resources.
func node(allocatable string) *v1.Node {
	list, err := ParseResources(allocatable)
	if err != nil {
		panic(err)
	}
	if _, ok := list[v1.ResourcePods]; !ok {
		list[v1.ResourcePods] = resource.MustParse("110")
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: nodeLabels("here", nil)},
		Status:     v1.NodeStatus{Capacity: list, Allocatable: list},
	}
}

// row is the part of a decision that tests compare.
type row struct {
	Name     string
	Verdict  Verdict
	Running  bool
	Replaces string // UIDs
	By       string
	Prune    bool
}

func rows(plan Plan) []row {
	var all []row
	for _, d := range plan.Decisions {
		r := row{Name: d.Pod.Name, Verdict: d.Verdict, Running: d.Running, Prune: d.Prune}
		for _, replaced := range d.Replaces {
			r.Replaces = strings.TrimPrefix(r.Replaces+" "+string(replaced.UID), " ")
		}
		if d.By != nil {
			r.By = d.By.Name
		}
		all = append(all, r)
	}
	return all
}

// was returns a pod of an earlier run with the same name but different content.
func was(p *v1.Pod) *v1.Pod {
	p.UID = "was-" + p.UID
	return p
}

func TestDecide(t *testing.T) {
	t.Parallel()
	critical := SystemCritical
	tests := []struct {
		name    string
		node    string
		running []*v1.Pod
		pods    []*v1.Pod
		options Options
		want    []row
		used    string
	}{
		{name: "nothing", node: "cpu=1", used: ""},
		{
			name: "the highest priority first", node: "cpu=1",
			pods: []*v1.Pod{pod("low", 1, "cpu=1"), pod("high", 2, "cpu=1")},
			want: []row{{Name: "low", Verdict: Rejected}, {Name: "high", Verdict: Admitted}},
			used: "cpu=1",
		},
		{
			name: "in input order among equals", node: "cpu=1",
			pods: []*v1.Pod{pod("b", 1, "cpu=1"), pod("a", 1, "cpu=1")},
			want: []row{{Name: "b", Verdict: Admitted}, {Name: "a", Verdict: Rejected}},
			used: "cpu=1",
		},
		{
			name: "in manifest order", node: "cpu=1", options: Options{Order: ByManifest},
			pods: []*v1.Pod{pod("low", 1, "cpu=1"), pod("high", 2, "cpu=1")},
			want: []row{{Name: "low", Verdict: Admitted}, {Name: "high", Verdict: Rejected}},
			used: "cpu=1",
		},
		{
			name: "in manifest order, a critical pod preempts one that has not started", node: "cpu=1", options: Options{Order: ByManifest},
			pods: []*v1.Pod{pod("low", 1, "cpu=1"), pod("critical", critical, "cpu=1")},
			want: []row{{Name: "low", Verdict: Preempted, By: "critical"}, {Name: "critical", Verdict: Admitted}},
			used: "cpu=1",
		},
		{
			name: "who was preempted for a pod that is preempted in turn stays", node: "cpu=3", options: Options{Order: ByManifest},
			pods: []*v1.Pod{pod("low", 1, "cpu=1"), pod("other", 1, "cpu=1"), pod("critical", critical, "cpu=2"), pod("more", critical+1, "cpu=2")},
			want: []row{
				{Name: "low", Verdict: Admitted},
				{Name: "other", Verdict: Preempted, By: "more"},
				{Name: "critical", Verdict: Preempted, By: "more"},
				{Name: "more", Verdict: Admitted},
			},
			used: "cpu=3",
		},
		{
			name: "unchanged", node: "cpu=1", running: []*v1.Pod{pod("a", 0, "cpu=1")}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Admitted, Running: true}},
			used: "cpu=1",
		},
		{
			name: "unchanged and not looked at again", node: "cpu=1", running: []*v1.Pod{pod("a", 0, "cpu=2")}, pods: []*v1.Pod{pod("a", 0, "cpu=2")},
			want: []row{{Name: "a", Verdict: Admitted, Running: true}},
			used: "cpu=2",
		},
		{
			name: "unchanged and preempted", node: "cpu=1", running: []*v1.Pod{pod("a", 0, "cpu=1")},
			pods: []*v1.Pod{pod("a", 0, "cpu=1"), pod("critical", critical, "cpu=1")},
			want: []row{{Name: "a", Verdict: Preempted, Running: true, By: "critical"}, {Name: "critical", Verdict: Admitted}},
			used: "cpu=1",
		},
		{
			name: "ended", node: "cpu=1", running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodSucceeded))}, pods: []*v1.Pod{pod("b", 0, "cpu=1"), pod("a", 0, "cpu=1")},
			want: []row{{Name: "b", Verdict: Admitted}, {Name: "a", Verdict: Admitted, Running: true}},
			used: "cpu=1",
		},
		{
			name: "failed", node: "cpu=1",
			running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodFailed))}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Admitted, Replaces: "uid-a"}},
			used: "cpu=1",
		},
		{
			name: "failed, and still runs", node: "cpu=1", options: Options{Listening: []Listener{{HostPort: HostPort{Protocol: "TCP", Port: 80}, Pod: "uid-a"}}},
			running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodFailed), stillRuns)}, pods: []*v1.Pod{pod("a", 0, "cpu=1", hostPort("", "TCP", 80))},
			want: []row{{Name: "a", Verdict: Admitted, Replaces: "uid-a"}},
			used: "cpu=1",
		},
		{
			name: "failed, and its name is lost", node: "cpu=1",
			running: []*v1.Pod{pod("a", 0, "", phase(v1.PodFailed), func(p *v1.Pod) { p.Name = "uid-a" })}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Admitted, Replaces: "uid-a"}},
			used: "cpu=1",
		},
		{
			name: "failed, and no longer fits", node: "cpu=1",
			running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodFailed)), pod("b", 0, "cpu=1")}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Rejected}},
			used: "cpu=1",
		},
		{
			name: "succeeded, to run again", node: "cpu=1", options: Options{Rerun: true},
			running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodSucceeded))}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Admitted, Replaces: "uid-a"}},
			used: "cpu=1",
		},
		{
			name: "failed, but its Job is complete", node: "cpu=1",
			running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodFailed), ignored)}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Admitted, Running: true}},
		},
		{
			name: "failed, its Job is complete, to run again", node: "cpu=1", options: Options{Rerun: true},
			running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodFailed), ignored)}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Admitted, Replaces: "uid-a"}},
			used: "cpu=1",
		},
		{
			name: "failed, to run once", node: "cpu=1", options: Options{Rerun: true, Once: func(p *v1.Pod) bool { return p.Name == "a" }},
			running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodFailed)), pod("b", 0, "", phase(v1.PodFailed))}, pods: []*v1.Pod{pod("a", 0, "cpu=1"), pod("b", 0, "")},
			want: []row{{Name: "a", Verdict: Admitted, Running: true}, {Name: "b", Verdict: Admitted, Replaces: "uid-b"}},
		},
		{
			name: "running, not to run again", node: "cpu=1", options: Options{Rerun: true},
			running: []*v1.Pod{pod("a", 0, "cpu=1")}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Admitted, Running: true}},
			used: "cpu=1",
		},
		{
			name: "running, to be replaced although it has not changed", node: "cpu=1", options: Options{Recreate: func(p *v1.Pod) bool { return p.Name == "a" }},
			running: []*v1.Pod{pod("a", 0, "cpu=1", hostPort("", "TCP", 80)), pod("b", 0, "")}, pods: []*v1.Pod{pod("a", 0, "cpu=1", hostPort("", "TCP", 80)), pod("b", 0, "")},
			want: []row{{Name: "a", Verdict: Admitted, Replaces: "uid-a"}, {Name: "b", Verdict: Admitted, Running: true}},
			used: "cpu=1",
		},
		{
			name: "succeeded, not to be replaced", node: "cpu=1", options: Options{Recreate: everyPod},
			running: []*v1.Pod{pod("a", 0, "cpu=1", phase(v1.PodSucceeded))}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Admitted, Running: true}},
		},
		{
			name: "to be replaced, beside one that wants its room", node: "cpu=1", options: Options{Recreate: everyPod},
			running: []*v1.Pod{pod("a", 0, "cpu=1")}, pods: []*v1.Pod{pod("b", 0, "cpu=1"), pod("a", 0, "cpu=1")},
			want: []row{{Name: "b", Verdict: Rejected}, {Name: "a", Verdict: Admitted, Replaces: "uid-a"}},
			used: "cpu=1",
		},
		{
			name: "changed", node: "cpu=2", running: []*v1.Pod{was(pod("a", 0, "cpu=2", hostPort("", "TCP", 80)))}, pods: []*v1.Pod{pod("b", 0, "cpu=1"), pod("a", 0, "cpu=1", hostPort("", "TCP", 80))},
			want: []row{{Name: "b", Verdict: Admitted}, {Name: "a", Verdict: Admitted, Replaces: "was-uid-a"}},
			used: "cpu=2",
		},
		{
			name: "changed to what does not fit, so that the old one stays", node: "cpu=2", running: []*v1.Pod{was(pod("a", 0, "cpu=2"))},
			pods: []*v1.Pod{pod("b", 0, "cpu=1"), pod("a", 0, "cpu=3")},
			want: []row{{Name: "b", Verdict: Rejected}, {Name: "a", Verdict: Rejected}},
			used: "cpu=2",
		},
		{
			name: "changed and preempted before it starts", node: "cpu=2", options: Options{Order: ByManifest}, running: []*v1.Pod{was(pod("a", 0, "cpu=1"))},
			pods: []*v1.Pod{pod("a", 0, "cpu=2"), pod("critical", critical, "cpu=2")},
			want: []row{
				{Name: "a", Verdict: Preempted, By: "critical"},
				{Name: "critical", Verdict: Admitted},
				{Name: "a", Verdict: Preempted, Running: true, By: "critical"},
			},
			used: "cpu=2",
		},
		{
			name: "other pods run on", node: "cpu=2", running: []*v1.Pod{pod("x", 0, "cpu=1500m")}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{{Name: "a", Verdict: Rejected}},
			used: "cpu=1500m",
		},
		{
			name: "other pods are pruned", node: "cpu=2", options: Options{Prune: everyPod},
			running: []*v1.Pod{pod("x", 0, "cpu=1500m"), pod("y", 0, "", phase(v1.PodFailed)), was(pod("a", 0, "cpu=1"))}, pods: []*v1.Pod{pod("a", 0, "cpu=2")},
			want: []row{
				{Name: "a", Verdict: Admitted, Replaces: "was-uid-a"},
				{Name: "x", Verdict: Admitted, Running: true, Prune: true},
				{Name: "y", Verdict: Admitted, Running: true, Prune: true},
			},
			used: "cpu=2",
		},
		{
			name: "only some other pods are pruned", node: "cpu=2", options: Options{Prune: func(p *v1.Pod) bool { return p.Name == "y" }},
			running: []*v1.Pod{pod("x", 0, "cpu=1"), pod("y", 0, "cpu=1")}, pods: []*v1.Pod{pod("a", 0, "cpu=1")},
			want: []row{
				{Name: "a", Verdict: Admitted},
				{Name: "y", Verdict: Admitted, Running: true, Prune: true},
			},
			used: "cpu=2",
		},
		{
			name: "two critical pods, one after the other", node: "cpu=2", running: []*v1.Pod{pod("x", 0, "cpu=1"), pod("y", 0, "cpu=1")},
			pods: []*v1.Pod{pod("a", critical, "cpu=1"), pod("b", critical, "cpu=1")},
			want: []row{
				{Name: "a", Verdict: Admitted},
				{Name: "b", Verdict: Admitted},
				{Name: "x", Verdict: Preempted, Running: true, By: "b"},
				{Name: "y", Verdict: Preempted, Running: true, By: "a"},
			},
			used: "cpu=2",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			plan := Decide(node(test.node), test.running, test.pods, test.options)
			if diff := cmp.Diff(test.want, rows(plan)); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			want, err := ParseResources(test.used)
			if err != nil {
				t.Fatal(err)
			}
			used := plan.Used[v1.ResourceCPU]
			if used.Cmp(want[v1.ResourceCPU]) != 0 {
				t.Errorf("%s cpu used, want %s", used.String(), test.used)
			}
		})
	}
}

func TestRemaining(t *testing.T) {
	t.Parallel()
	n := node("cpu=2,memory=1Gi,hugepages-2Mi=4Mi")
	left := Remaining(Decide(n, []*v1.Pod{pod("r", 0, "cpu=500m,memory=2Gi")}, []*v1.Pod{pod("p", 0, "cpu=1")}, Options{}))
	got := map[v1.ResourceName]string{}
	for name, q := range left {
		got[name] = q.String()
	}
	want := map[v1.ResourceName]string{"cpu": "500m", "memory": "0", "hugepages-2Mi": "4Mi", "pods": "108"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecisionStatus(t *testing.T) {
	t.Parallel()
	running := []*v1.Pod{pod("victim", 0, "cpu=1")}
	input := []*v1.Pod{pod("critical", SystemCritical, "cpu=1"), pod("big", 0, "cpu=2", limits)}
	plan := Decide(node("cpu=1"), running, input, Options{})
	want := []v1.PodStatus{
		{},
		{
			Phase: v1.PodFailed, Reason: "OutOfcpu", QOSClass: v1.PodQOSBurstable,
			Message: "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 1000, capacity: 1000",
		},
		{
			Phase: v1.PodFailed, Reason: "Preempting", Message: "Preempted in order to admit critical pod", QOSClass: v1.PodQOSBurstable,
			Conditions: []v1.PodCondition{{
				Type: "DisruptionTarget", Status: "True", Reason: "TerminationByKubelet",
				Message: "Pod was preempted by Kubelet to accommodate a critical pod.",
			}},
		},
	}
	var got []v1.PodStatus
	for _, d := range plan.Decisions {
		got = append(got, d.Status())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
