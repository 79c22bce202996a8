package decode

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
)

// Into decodes the document into obj, a pointer to an empty Kubernetes API type, and returns
// every unknown field, wrong type and unusable quantity. obj is complete only when there is no
// error among them.
//
// It uses sigs.k8s.io/json, the strict decoder of the API server. That stops at the first wrong
// type and knows no lines, so when it rejects a document, a walker checks each value against
// its type.
func Into(d Document, obj any) Diagnostics {
	t := reflect.TypeOf(obj).Elem()
	if d.variables {
		adapt(d.root, t)
	}
	e := encoder{buf: make([]byte, 0, 2<<10)}
	e.value(d.root)
	w := walker{doc: d}
	if e.large { // perhaps too large for Kubernetes' arithmetic
		if w.value(d.root, t); len(w.problems.Of(SeverityError)) > 0 {
			return w.problems
		}
		e.buf = e.buf[:0]
		e.value(d.root)
	}
	unknown, err := kjson.UnmarshalStrict(e.buf, obj, kjson.DisallowUnknownFields)
	if err = errors.Join(append(unknown, err)...); err == nil {
		return w.problems
	}
	if w.value(d.root, t); len(w.problems.Of(SeverityError)) == 0 {
		w.fail(d.root.line, err.Error(), "")
	}
	return w.problems
}

// walker checks the values of a document against the type that it is decoded into.
type walker struct {
	doc      Document
	path     []string
	outer    []reflect.Type // objects, from the outermost to the current one
	problems Diagnostics
}

// UnknownField is the message about a field that an object does not have.
const UnknownField = "unknown field"

// maxProblems bounds the errors of a document; nobody needs more, and each costs a search for
// the field that was meant.
const maxProblems = 999

func (w *walker) fail(line int, message, hint string) {
	w.note(line, message, hint, SeverityError)
}

// reject notes that a value cannot be decoded.
func (w *walker) reject(n *node, message, hint string) {
	w.fail(n.line, message, hint)
	w.doc.rejected[n] = true
}

func (w *walker) note(line int, message, hint string, severity Severity) {
	switch {
	case w.full():
		return
	case len(w.problems) == maxProblems: // the rest is not checked
		message, hint, severity = "further errors are not shown", "", SeverityError
	}
	d := w.doc.Error("", message, hint)
	d.Line, d.Field, d.Severity = line, JoinPath(append([]string{w.doc.Prefix}, w.path...)), severity
	w.problems = append(w.problems, d)
}

func (w *walker) full() bool { return len(w.problems) > maxProblems }

// below checks the value at the next step of the path.
func (w *walker) below(seg string, n *node, t reflect.Type) {
	w.path = append(w.path, seg)
	w.value(n, t)
	w.path = w.path[:len(w.path)-1]
}

func (w *walker) value(n *node, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.kind == Null || w.full():
	case t == reflect.TypeFor[resource.Quantity]():
		w.quantity(n)
	case n.kind == Map && fieldsOf(t) != nil:
		w.object(n, t)
	case n.kind == Map && t.Kind() == reflect.Map, n.kind == List && t.Kind() == reflect.Slice && !DecodesItself(t):
		for i, e := range n.entries {
			if n.kind == List {
				e.name = strconv.Itoa(i)
			}
			w.below("["+shorten(e.name)+"]", e.value, t.Elem())
		}
	default:
		var e encoder
		e.value(n)
		if err := kjson.UnmarshalCaseSensitivePreserveInts(e.buf, reflect.New(t).Interface()); err != nil {
			message, hint := w.explain(n, t, err)
			w.reject(n, message, hint)
		}
	}
}

func (w *walker) object(n *node, t reflect.Type) {
	fields := fieldsOf(t)
	w.outer = append(w.outer, t)
	for _, e := range n.entries {
		if field, ok := fields[e.name]; ok {
			w.below(shorten(e.name), e.value, field)
		} else if !w.full() {
			w.path = append(w.path, shorten(e.name))
			w.fail(e.line, UnknownField, w.unknownHint(e.name, t))
			w.path = w.path[:len(w.path)-1]
		}
	}
	w.outer = w.outer[:len(w.outer)-1]
}

// knownFields are the results of fieldsOf, by type.
var knownFields sync.Map

// fieldsOf returns the types of the fields of a struct by their names in JSON, and nil for
// other types and for those with their own decoder.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := knownFields.Load(t); ok {
		fields, _ := known.(map[string]reflect.Type)
		return fields
	}
	var fields map[string]reflect.Type
	if !DecodesItself(t) {
		fields = make(map[string]reflect.Type, t.NumField())
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && name == "":
				maps.Copy(fields, fieldsOf(f.Type))
			case f.IsExported() && name != "-":
				fields[cmp.Or(name, f.Name)] = f.Type
			}
		}
	}
	knownFields.Store(t, fields)
	return fields
}

// names returns the field names of an object, sorted.
func names(t reflect.Type) []string { return slices.Sorted(maps.Keys(fieldsOf(t))) }

// DecodesItself says whether a type has its own form in JSON.
func DecodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
