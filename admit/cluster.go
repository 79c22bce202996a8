package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// The scheduler's reasons (pkg/scheduler/framework/plugins).
const (
	unschedulableName     = "node(s) didn't match the requested node name"
	unschedulableTaint    = "node(s) had untolerated taint(s)"
	unschedulableAffinity = "node(s) didn't match Pod's node affinity/selector"
)

// nodeTaints prefix the taints that say in which state a node is, which may change.
var nodeTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// Unschedulable says in the scheduler's words why none of the nodes of a cluster could hold the pod,
// even if it were empty. It is "" if one could, if there are no nodes, or if that is up to another
// scheduler. What may change without the pod or a node being changed does not count.
func Unschedulable(pod *v1.Pod, nodes []*v1.Node) string {
	if len(nodes) == 0 || cmp.Or(pod.Spec.SchedulerName, v1.DefaultSchedulerName) != v1.DefaultSchedulerName {
		return ""
	}
	reasons, requests := map[string]int{}, Requests(pod)
	for _, node := range nodes {
		unfit := misfits(pod, requests, node)
		if len(unfit) == 0 {
			return ""
		}
		for _, reason := range unfit {
			reasons[reason]++
		}
	}
	texts := make([]string, 0, len(reasons))
	for reason, n := range reasons {
		texts = append(texts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(texts)
	return fmt.Sprintf("0/%d nodes are available: %s.", len(nodes), strings.Join(texts, ", "))
}

// misfits returns the reasons of the first of the scheduler's plugins that has one, in its order.
func misfits(pod *v1.Pod, requests v1.ResourceList, node *v1.Node) []string {
	if pod.Spec.NodeName != "" { // which leaves the rest to the kubelet
		if pod.Spec.NodeName != node.Name {
			return []string{unschedulableName}
		}
		return nil
	}
	if slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return keepsAway(t) && !tolerates(pod.Spec.Tolerations, t) }) {
		return []string{unschedulableTaint}
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok || err != nil {
		return []string{unschedulableAffinity}
	}
	return shortages(requests, node)
}

func keepsAway(t v1.Taint) bool {
	return (t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute) &&
		!slices.ContainsFunc(nodeTaints, func(prefix string) bool { return strings.HasPrefix(t.Key, prefix) })
}

// shortages returns what an empty node has too little of. A resource that it does not have may yet
// come, from a device plugin or a driver.
func shortages(requests v1.ResourceList, node *v1.Node) []string {
	a := newAllocated(node, []v1.ResourceList{requests})
	var reasons []string
	for _, short := range a.insufficient(a.requests(requests)) {
		name := a.names[short.resource]
		if _, has := node.Status.Allocatable[name]; !has {
			continue
		}
		if name == v1.ResourcePods {
			reasons = append(reasons, "Too many pods")
			continue
		}
		reasons = append(reasons, "Insufficient "+string(name))
	}
	return reasons
}
