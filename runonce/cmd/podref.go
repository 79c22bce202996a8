package cmd

import (
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// errNoPod says that a pod does not exist.
var errNoPod = errors.New("no such pod")

// resolve returns those of the candidates that a reference names: [NAMESPACE/]POD, or the same after "pod/" as
// for kubectl. All of them are of one namespace. When there are none, it returns the error.
func resolve[T any](ref string, all []T, nameOf func(T) types.NamespacedName, none error) ([]T, error) {
	var named []T
	var names []string
	for _, one := range all {
		if name := nameOf(one); isNamed(ref, name) {
			named, names = append(named, one), append(names, name.String())
		}
	}
	switch names = distinctNames(names); len(names) {
	case 0:
		return nil, none
	case 1:
		return named, nil
	}
	return nil, usagef("pod %q is in several namespaces: give one of %s", ref, strings.Join(names, ", "))
}

// isNamed says whether the reference names the pod.
func isNamed(ref string, name types.NamespacedName) bool {
	short := withoutKind(ref)
	return ref == name.String() || short == name.Name || short == name.String()
}

// withoutKind returns the name of a pod without the kind that may be before it.
func withoutKind(ref string) string {
	kind, name, ok := strings.Cut(ref, "/")
	if ok && slices.Contains(podKinds, kind) {
		return name
	}
	return ref
}

// podKinds are the words for pods of kubectl.
var podKinds = []string{"pod", "pods", "po"}

// podArguments returns the references among arguments before which may be the word for pods, as for kubectl.
func podArguments(args []string) []string {
	if len(args) > 0 && slices.Contains(podKinds, args[0]) {
		return args[1:]
	}
	return args
}

// namespacesIn returns the namespaces that references name.
func namespacesIn(refs []string) []string {
	var all []string
	for _, ref := range refs {
		if namespace, _, ok := strings.Cut(withoutKind(ref), "/"); ok && namespace != "" {
			all = append(all, namespace)
		}
	}
	return all
}

// inNamespace returns the pods of a namespace, all for "".
func inNamespace(namespace string, pods []*v1.Pod) []*v1.Pod {
	return only(pods, func(pod *v1.Pod) bool { return namespace == "" || pod.Namespace == namespace })
}

func only(pods []*v1.Pod, wanted func(*v1.Pod) bool) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return !wanted(pod) })
}

// namespacesOf returns the namespaces of pods.
func namespacesOf(pods []*v1.Pod) []string {
	all := make([]string, 0, len(pods))
	for _, pod := range pods {
		all = append(all, pod.Namespace)
	}
	return all
}

// distinctNames returns the names, sorted and each once.
func distinctNames(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
