package cmd

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
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

// namedPods returns the pods that references name, each once. none is the error for one that names none.
func namedPods(refs []string, pods []*v1.Pod, none func(ref string) error) (all []*v1.Pod, err error) {
	for _, ref := range refs {
		found, err := resolve(ref, pods, podspec.NameOf, none(ref))
		if err != nil {
			return nil, err
		}
		for _, pod := range found {
			if !slices.Contains(all, pod) {
				all = append(all, pod)
			}
		}
	}
	return all, nil
}

// containerRef names a container.
type containerRef struct {
	pod       string // a reference
	namespace string // the only one, "" for all
	container string // "" for the one that kubectl chooses
}

// locate returns the container that is meant, and its pod.
func (c *console) locate(ctx context.Context, t target, ref containerRef) (*v1.Pod, string, error) {
	pod, err := t.find(ctx, ref.pod, ref.namespace)
	if err != nil {
		return nil, "", err
	}
	container, err := c.containerOf(pod, ref.container)
	return pod, container, err
}

// find returns the pod of this machine that a reference names. It needs no engine.
func (t *nodeTarget) find(_ context.Context, ref, namespace string) (*v1.Pod, error) {
	pods, err := t.known()
	if err != nil {
		return nil, err
	}
	named, err := namedPods([]string{ref}, inNamespace(namespace, pods), func(ref string) error {
		return usagef("no pod %q on this machine; see %q", ref, "runonce ps")
	})
	if err != nil {
		return nil, err
	}
	return named[0], nil
}

// find returns the pod of the cluster that a reference names. The cluster shows only those of the namespace.
func (t *clusterTarget) find(ctx context.Context, ref, _ string) (*v1.Pod, error) {
	all, err := t.list(ctx, func() []string { return namespacesIn([]string{ref}) })
	if err != nil {
		return nil, err
	}
	named, err := namedPods([]string{ref}, all, notOnCluster)
	if err != nil {
		return nil, err
	}
	return named[0], nil
}

func unknownPod(ref string) error { return usagef("no pod %q; see %q", ref, "runonce ps") }

func notOnCluster(ref string) error {
	return usagef("no pod %q on the cluster; see %q", ref, "runonce ps")
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
