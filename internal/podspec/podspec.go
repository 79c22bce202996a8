// Package podspec has functions on a v1.Pod that many packages need, and the annotations that
// they set and read. It is pure.
package podspec

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The annotations of this program.
const (
	// AnnotationRuntimeHandler is the handler of the pod's RuntimeClass; a pod without a class
	// has none. It is part of the pod's UID: with another runtime it is another pod.
	AnnotationRuntimeHandler = "runonce/runtime-handler"
	// AnnotationSource is where the pod was read from, as "file:line". It is not part of the
	// pod's UID.
	AnnotationSource = "runonce/source"
	// AnnotationPath is the absolute path of the file that the pod was last read from, a URL
	// without its secrets, or "-" for standard input. It says which later commands the pod
	// belongs to, and is not part of its UID.
	AnnotationPath = "runonce/path"
	// AnnotationNode is the name of the node in a cluster for which the provider was given the pod.
	AnnotationNode = "runonce/node"
	// AnnotationJob is set on each pod of a Job: the Job's name and the fields of its spec
	// that say what to do when pods fail, as JSON. It is not part of the pod's UID.
	AnnotationJob = "runonce/job"
	// AnnotationJobFailures is how often a pod of a Job has failed before, so that a later run
	// continues to count.
	AnnotationJobFailures = "runonce/job-failures"
	// AnnotationDependsOn says what must have reached which condition before the pod starts: see
	// ParseDependencies. It is not part of the pod's UID, as are the next two.
	AnnotationDependsOn = "runonce/depends-on"
	// AnnotationOptional is "true" if the exit code of a run does not depend on the pod.
	AnnotationOptional = "runonce/optional"
	// AnnotationGroups are the names of workloads and Services, between commas, to which the pod belongs and
	// on which others of the input depend. It is set on the pods of the input, so that those that run are
	// stopped in order, too.
	AnnotationGroups = "runonce/groups"
	// AnnotationPublish asks for free ports of the machine: see ParsePublish.
	AnnotationPublish = "runonce/publish"
	// AnnotationContent is the UID of a pod on a cluster, which gives it another one.
	AnnotationContent = "runonce/content"
)

// Annotations are the names of all annotations of this program on pods.
var Annotations = []string{
	AnnotationDependsOn, AnnotationOptional, AnnotationPublish, AnnotationGroups, AnnotationRuntimeHandler, AnnotationSource, AnnotationPath,
	AnnotationNode, AnnotationJob, AnnotationJobFailures, AnnotationContent,
}

// InputAnnotations say how a pod belongs to its input. They are not part of its UID.
var InputAnnotations = []string{
	AnnotationSource, AnnotationPath, AnnotationJob, AnnotationDependsOn, AnnotationOptional, AnnotationGroups,
}

// Objects are what pods refer to. Claims are bound: a claim's volumeName is that of the volume
// that it uses, or empty if it gets a directory.
type Objects interface {
	ConfigMap(namespace, name string) (*v1.ConfigMap, bool)
	Secret(namespace, name string) (*v1.Secret, bool)
	Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool)
	PersistentVolume(name string) (*v1.PersistentVolume, bool)
}

// ObjectsOf returns what the pod refers to: the objects, unless these have a method Of, which returns those of
// the pod.
func ObjectsOf(pod *v1.Pod, objects Objects) Objects {
	if own, ok := objects.(interface{ Of(pod *v1.Pod) Objects }); ok {
		return own.Of(pod)
	}
	return objects
}

// FullName returns "namespace/name", "" for no pod.
func FullName(pod *v1.Pod) string {
	if pod == nil {
		return ""
	}
	return pod.Namespace + "/" + pod.Name
}

// ShortName returns "namespace/name", or only the name in the default namespace.
func ShortName(name types.NamespacedName) string {
	if name.Namespace == v1.NamespaceDefault || name.Namespace == "" {
		return name.Name
	}
	return name.String()
}

// NameOf returns the namespace and the name of a pod or another object.
func NameOf[T metav1.Object](o T) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Containers returns the init containers, then the containers: those that say what becomes of the pod.
func Containers(pod *v1.Pod) []*v1.Container {
	all := make([]*v1.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// LongRunning returns the containers that run as long as the pod does: the sidecars, then the
// containers.
func LongRunning(pod *v1.Pod) []*v1.Container {
	inits := len(pod.Spec.InitContainers)
	all := Containers(pod)
	sidecars := slices.DeleteFunc(all[:inits:inits], func(c *v1.Container) bool { return !IsSidecar(c) })
	return append(sidecars, all[inits:]...)
}

// Container returns the container of any kind with the name, nil when there is none.
func Container(pod *v1.Pod, name string) *v1.Container {
	for _, c := range AllContainers(pod) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// IsSidecar says whether an init container runs along with the containers of the pod
// (podutil.IsRestartableInitContainer).
func IsSidecar(init *v1.Container) bool {
	return init.RestartPolicy != nil && *init.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// PostStart returns the hook that runs when the container has started, nil for none.
func PostStart(c *v1.Container) *v1.LifecycleHandler {
	if c.Lifecycle == nil {
		return nil
	}
	return c.Lifecycle.PostStart
}

// GracePeriod is how long the pod's containers may take to stop, 30 s by default (the API's
// default).
func GracePeriod(pod *v1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return v1.DefaultTerminationGracePeriodSeconds * time.Second
}

// TerminationGrace is how long the containers may take to stop when the pod is ended: its grace
// period, and at least one second, so that hooks run (calculateEffectiveGracePeriod of pkg/kubelet).
func TerminationGrace(pod *v1.Pod) time.Duration { return max(GracePeriod(pod), time.Second) }

// HostPorts returns the ports with a hostPort, those of sidecars first. Other init containers
// have none (scheduler/util.GetHostPorts).
func HostPorts(pod *v1.Pod) []v1.ContainerPort {
	var ports []v1.ContainerPort
	for _, c := range LongRunning(pod) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				ports = append(ports, p)
			}
		}
	}
	return ports
}
