package podspec

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// CameFrom says whether the pod was read from the file, the directory or one below it, the URL,
// or standard input ("-"). A path must be absolute and clean.
func CameFrom(pod *v1.Pod, origin string) bool {
	p := pod.Annotations[AnnotationPath]
	return p != "" && (p == origin || path.IsAbs(origin) && strings.HasPrefix(p, strings.TrimSuffix(origin, "/")+"/"))
}
