package podspec

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is an object of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}
