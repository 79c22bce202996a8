package admit_test

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
)

// Does a critical pod with two processors fit on a node whose four processors are in use, and
// which pods are preempted?
func ExampleDecide() {
	pod := func(name, requests string, priority int32) *v1.Pod {
		list, err := admit.ParseResources(requests)
		if err != nil {
			panic(err)
		}
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec: v1.PodSpec{
				Priority:   &priority,
				Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: list}}},
			},
		}
	}
	capacity, err := admit.ParseResources("cpu=4,memory=8Gi")
	if err != nil {
		panic(err)
	}
	node := admit.FromNodeFile(&v1.Node{}, admit.NodeOptions{Name: "here", Capacity: capacity})
	running := []*v1.Pod{pod("web", "cpu=1500m", 100), pod("batch-1", "cpu=1", 0), pod("batch-2", "cpu=1", 0)}

	plan := admit.Decide(node, running, []*v1.Pod{pod("dns", "cpu=2", admit.SystemCritical), pod("more", "cpu=1", 0)}, admit.Options{})
	for _, d := range plan.Decisions {
		fmt.Print(d.Pod.Name, ": ", d.Verdict)
		if d.Reason != "" {
			fmt.Print(", ", d.Reason)
		}
		fmt.Println()
	}
	left := admit.Remaining(plan)
	fmt.Println("proven:", plan.Optimal, "cpu left:", left.Cpu())
	// Output:
	// dns: Admitted
	// more: Rejected, OutOfcpu
	// batch-1: Preempted, Preempting
	// batch-2: Preempted, Preempting
	// proven: true cpu left: 500m
}
