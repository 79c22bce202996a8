package podspec

import (
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CameFrom says whether the pod, or another object, was read from the file, the directory or one below it, the URL,
// or standard input ("-"). A path must be absolute and clean.
func CameFrom(o metav1.Object, origin string) bool {
	p := o.GetAnnotations()[AnnotationPath]
	return p != "" && (p == origin || path.IsAbs(origin) && strings.HasPrefix(p, strings.TrimSuffix(origin, "/")+"/"))
}
