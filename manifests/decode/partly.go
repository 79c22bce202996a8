package decode

import (
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Wrong is a field that is not decoded.
type Wrong struct {
	// Path is its path in the object.
	Path string
	// Unknown says that the object has no such field; otherwise its value is wrong.
	Unknown bool
}

// Wrong returns the fields that Partly left out.
func (d Document) Wrong() []Wrong { return d.wrong }

// IsWrong says whether a field, one that it is in, or one inside it is wrong.
func (d Document) IsWrong(path string) bool {
	return slices.ContainsFunc(d.wrong, func(w Wrong) bool { return Within(path, w.Path) || Within(w.Path, path) })
}

// Within says whether a path is outer or below it.
func Within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// maxWrong bounds the problems of a document that is partly decoded. One with many is something
// else, and Into stops to check the values of one with very many.
const maxWrong = 100

// Partly decodes a document, with the problems that Into and Split have found, into obj, a pointer
// to a Kubernetes API type, without the values that these are about. It returns the document that
// knows their fields, and false if the rest cannot be decoded either.
func Partly(d Document, obj any, problems Diagnostics) (Document, bool) {
	if len(problems) > maxWrong {
		return d, false
	}
	for _, p := range problems.Of(SeverityError) {
		path := strings.TrimPrefix(strings.TrimPrefix(p.Field, d.Prefix), ".")
		if path == "" {
			return d, false
		}
		d.wrong = append(d.wrong, Wrong{path, p.Message == UnknownField})
	}
	e := encoder{skip: d.rejected}
	e.value(d.root)
	reflect.ValueOf(obj).Elem().SetZero()
	return d, kjson.UnmarshalCaseSensitivePreserveInts(e.buf, obj) == nil
}
