package strict

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// shape is what a Go type looks like in JSON.
type shape uint8

const (
	shapeAny shape = iota // decodes itself
	shapeString
	shapeBool
	shapeInt
	shapeFloat
	shapeList
	shapeMap
	shapeStruct
	shapeBytes
	shapeQuantity
	shapeIntOrString
	shapeTime
)

// typeInfo is what the checker needs to know of a Go type.
type typeInfo struct {
	shape  shape
	bits   int
	elem   reflect.Type         // of lists and maps
	fields map[string]fieldInfo // of structs, by JSON name
}

// fieldInfo is where a field is in its struct, and its type.
type fieldInfo struct {
	index []int
	typ   reflect.Type
}

// types remembers the typeInfo of each Go type met.
type types struct{ known sync.Map }

func (ts *types) of(t reflect.Type) *typeInfo {
	if info, ok := ts.known.Load(t); ok {
		if info, ok := info.(*typeInfo); ok {
			return info
		}
	}
	info := describe(t)
	ts.known.Store(t, info)
	return info
}

func describe(t reflect.Type) *typeInfo {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return &typeInfo{shape: shapeQuantity}
	case reflect.TypeFor[intstr.IntOrString]():
		return &typeInfo{shape: shapeIntOrString}
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return &typeInfo{shape: shapeTime}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return &typeInfo{shape: shapeAny}
	}
	switch t.Kind() {
	case reflect.String:
		return &typeInfo{shape: shapeString}
	case reflect.Bool:
		return &typeInfo{shape: shapeBool}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &typeInfo{shape: shapeInt, bits: t.Bits()}
	case reflect.Float32, reflect.Float64:
		return &typeInfo{shape: shapeFloat, bits: t.Bits()}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &typeInfo{shape: shapeBytes}
		}
		return &typeInfo{shape: shapeList, elem: t.Elem()}
	case reflect.Map:
		return &typeInfo{shape: shapeMap, elem: t.Elem()}
	case reflect.Struct:
		info := &typeInfo{shape: shapeStruct, fields: make(map[string]fieldInfo, t.NumField())}
		addFields(info.fields, t, nil)
		return info
	default:
		return &typeInfo{shape: shapeAny}
	}
}

// addFields collects the JSON fields of a struct, those of inlined structs included.
func addFields(fields map[string]fieldInfo, t reflect.Type, index []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		at := append(slices.Clone(index), i)
		if f.Type.Kind() == reflect.Struct && (strings.Contains(opts, "inline") || (f.Anonymous && name == "")) {
			addFields(fields, f.Type, at)
			continue
		}
		if name == "" {
			name = f.Name
		}
		fields[name] = fieldInfo{at, f.Type}
	}
}
