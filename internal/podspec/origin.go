package podspec

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Path returns where the pod was read from, as AnnotationPath describes it. Pods of older
// versions have only the source as it was typed, which helps if it is absolute; otherwise it is
// "".
func Path(pod *v1.Pod) string {
	if p := pod.Annotations[AnnotationPath]; p != "" {
		return p
	}
	source := pod.Annotations[AnnotationSource]
	if i := strings.LastIndexByte(source, ':'); i >= 0 && path.IsAbs(source) {
		return path.Clean(source[:i])
	}
	return ""
}

// CameFrom says whether the pod was read from the file, the directory or one below it, the URL,
// or standard input ("-"). A path must be absolute and clean.
func CameFrom(pod *v1.Pod, origin string) bool {
	p := Path(pod)
	return p != "" && (p == origin || path.IsAbs(origin) && strings.HasPrefix(p, strings.TrimSuffix(origin, "/")+"/"))
}
