package cmd

import (
	"path"
	"slices"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
)

// prune returns which pods of earlier runs --prune stops when the input does not have them: those
// that came from the same paths, unless their file can no longer be read. Without --recursive a
// directory stands for the files in it alone, since somebody else may run those below it. The
// pods of "plan --running", which runs offline, count as coming from the same paths.
func prune(c *cli.Context, set *manifests.Set, local bool) func(*v1.Pod) bool {
	switch {
	case !c.Bool("prune"):
		return nil
	case !local:
		return func(*v1.Pod) bool { return true }
	}
	recursive, origins := c.Bool("recursive"), origins(c)
	return func(pod *v1.Pod) bool {
		at := pod.Annotations[podspec.AnnotationPath]
		belongs := slices.ContainsFunc(origins, func(origin string) bool {
			if recursive {
				return podspec.CameFrom(pod, origin)
			}
			return at != "" && (at == origin || path.IsAbs(at) && path.Dir(at) == origin)
		})
		return belongs && !slices.ContainsFunc(set.Invalid, func(in manifests.Invalid) bool {
			return podspec.CameFrom(pod, in.Path)
		})
	}
}

// origins returns where pods of the arguments come from.
func origins(c *cli.Context) []string {
	all := make([]string, 0, c.Args().Len())
	for _, arg := range c.Args().Slice() {
		all = append(all, manifests.Origin(arg))
	}
	return all
}
