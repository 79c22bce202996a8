package cmd

import (
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
)

// scope is where the pods of a command come from, and so which pods of earlier runs are in its scope.
type scope struct {
	paths     []string
	recursive bool
	prune     bool
}

// pruned returns which pods and Services of earlier runs --prune removes when the input does not have them: those
// that came from the same paths, unless their file can no longer be read. Without --recursive a
// directory stands for the files in it alone, since somebody else may run those below it.
func (s scope) pruned(set *manifests.Set) func(metav1.Object) bool {
	if !s.prune {
		return nil
	}
	origins := origins(s.paths)
	return func(o metav1.Object) bool {
		at := o.GetAnnotations()[podspec.AnnotationPath]
		belongs := slices.ContainsFunc(origins, func(origin string) bool {
			if s.recursive {
				return podspec.CameFrom(o, origin)
			}
			return at != "" && (at == origin || path.IsAbs(at) && path.Dir(at) == origin)
		})
		return belongs && !slices.ContainsFunc(set.Invalid, func(in manifests.Invalid) bool {
			return podspec.CameFrom(o, in.Path)
		})
	}
}

// prunedPods is pruned for pods.
func (s scope) prunedPods(set *manifests.Set) func(*v1.Pod) bool {
	pruned := s.pruned(set)
	if pruned == nil {
		return nil
	}
	return func(pod *v1.Pod) bool { return pruned(pod) }
}

// origins returns where pods of the paths come from.
func origins(paths []string) []string {
	all := make([]string, 0, len(paths))
	for _, p := range paths {
		all = append(all, manifests.Origin(p))
	}
	return all
}
