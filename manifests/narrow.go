package manifests

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// Narrow leaves in the set, of its pods, only those that are wanted, what these depend on, also through others, and the
// rest of their Jobs, which are run as a whole. It returns the pods that are there for another one's sake. Workloads
// without pods go as well, while everything that pods refer to stays.
func (s *Set) Narrow(wanted []*v1.Pod) (added []*v1.Pod) {
	named, jobs := map[types.NamespacedName][]*v1.Pod{}, map[types.NamespacedName][]*v1.Pod{}
	for _, pod := range s.Pods {
		named[podspec.NameOf(pod)] = append(named[podspec.NameOf(pod)], pod)
		if job, ok := podspec.JobOf(pod); ok {
			id := types.NamespacedName{Namespace: pod.Namespace, Name: job.Name}
			jobs[id] = append(jobs[id], pod)
		}
	}
	kept, own := map[*v1.Pod]bool{}, map[*v1.Pod]bool{}
	for _, pod := range wanted {
		own[pod] = true
	}
	var queue []*v1.Pod
	keep := func(pods []*v1.Pod) {
		for _, pod := range pods {
			if !kept[pod] {
				kept[pod], queue = true, append(queue, pod)
			}
		}
	}
	for keep(wanted); len(queue) > 0; {
		pod := queue[0]
		queue = queue[1:]
		if job, ok := podspec.JobOf(pod); ok {
			keep(jobs[types.NamespacedName{Namespace: pod.Namespace, Name: job.Name}])
		}
		for _, d := range s.dependencies[podspec.NameOf(pod)] {
			for _, name := range d.Pods {
				keep(named[name])
			}
		}
	}
	s.Pods = slices.DeleteFunc(s.Pods, func(pod *v1.Pod) bool { return !kept[pod] })
	s.dropWorkloads()
	return slices.DeleteFunc(slices.Clone(s.Pods), func(pod *v1.Pod) bool { return own[pod] })
}

// dropWorkloads leaves out the workloads that have made none of the pods, also not through another one.
func (s *Set) dropWorkloads() {
	owners := map[types.UID]bool{}
	for _, pod := range s.Pods {
		for _, ref := range pod.OwnerReferences {
			owners[ref.UID] = true
		}
	}
	for _, o := range s.workloads {
		for _, ref := range o.GetOwnerReferences() {
			owners[ref.UID] = owners[ref.UID] || owners[o.GetUID()]
		}
	}
	s.workloads = slices.DeleteFunc(s.workloads, func(o podspec.Object) bool { return !owners[o.GetUID()] })
}
