package apiserver

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runonce/runonce/runtime/serve/objects"
)

// shallow returns a copy of the object that shares all but its fields: enough to set its kind or its version.
func shallow[T runtime.Object](o T) T {
	from := reflect.ValueOf(o).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	copied, ok := to.Interface().(T)
	if !ok {
		return o
	}
	return copied
}

// atVersion returns the object with another version.
func atVersion(o objects.Object, version uint64) objects.Object {
	o = shallow(o)
	o.SetResourceVersion(formatVersion(version))
	return o
}
