package admit

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func other(cgroup, cpu, memory string) Other {
	return Other{Cgroup: cgroup, Kind: "pod", CPU: resource.MustParse(cpu), Memory: resource.MustParse(memory)}
}

// TestOthers: what others have comes on top of what is reserved, and no more than everything is missing.
func TestOthers(t *testing.T) {
	t.Parallel()
	o := NodeOptions{Reserved: parse(t, "cpu=500m,memory=1Gi"), Others: []Other{other("/a", "250m", "512Mi"), other("/b", "1", "0")}}
	for name, test := range map[string]struct {
		file string
		want map[string]string
	}{
		"less": {"cpu=4,memory=2Gi,pods=9", map[string]string{"cpu": "2250m", "memory": "512Mi", "pods": "9"}},
		"all":  {"cpu=1,memory=1Gi,pods=9", map[string]string{"cpu": "0", "memory": "0", "pods": "9"}},
	} {
		file := &v1.Node{Status: v1.NodeStatus{Allocatable: parse(t, test.file)}}
		if diff := cmp.Diff(test.want, texts(FromNodeFile(file, o).Status.Allocatable)); diff != "" {
			t.Errorf("%s: a file (-want +got):\n%s", name, diff)
		}
	}
	if o.Reserved.Cpu().String() != "500m" {
		t.Errorf("the options have changed: %v", o.Reserved)
	}
	o.Capacity = parse(t, "cpu=4,memory=8Gi")
	node, err := Detect(machine("4194304"), DetectOptions{NodeOptions: o})
	if err != nil {
		t.Fatal(err)
	}
	if cpu, memory := node.Status.Allocatable.Cpu().String(), node.Status.Allocatable.Memory().String(); cpu != "2250m" || memory != "6524Mi" {
		t.Errorf("cpu %s, memory %s", cpu, memory)
	}
}

// TestOthersInMessage: those that have most of what is missing are named.
func TestOthersInMessage(t *testing.T) {
	t.Parallel()
	o := Options{}
	for i := range 5 {
		o.Others = append(o.Others, other(fmt.Sprintf("/g%d", i), fmt.Sprintf("%dm", 100*i), "0"))
	}
	p := Decide(node("cpu=1,memory=1Gi"), nil, []*v1.Pod{pod("a", 0, "cpu=2,memory=2Gi")}, o)
	const no = "Node didn't have enough resource: "
	want := []Reason{
		{"OutOfcpu", no + "cpu, requested: 2000, used: 0, capacity: 1000, not counting what other containers have: /g4 (400m), /g3 (300m), /g2 (200m), 1 more"},
		{"OutOfmemory", no + "memory, requested: 2147483648, used: 0, capacity: 1073741824"},
	}
	if diff := cmp.Diff(want, p.Decisions[0].Reasons); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(p.Others) != 5 {
		t.Errorf("the plan has %+v", p.Others)
	}
}
