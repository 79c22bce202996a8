package manifests

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// fieldUse is a field that an object sets and that is not supported, or not with this value.
type fieldUse struct {
	// Field is the path in the object, with the indices of its lists.
	Field string
	// Row is the path in the table, the same for all items of a list.
	Row string
	// Refused fields are errors, the others are ignored.
	Refused bool
	// Message says that the field is not supported or ignored, and why.
	Message string
}

// uses returns the fields of the pod that are refused or ignored, in the order of the type's
// fields. The pod must be as it was written, without defaults.
func (t *fieldTable) uses(pod *v1.Pod) []fieldUse { return t.usesOf("", pod) }

// usesOf is like uses for a workload without its pod template. obj is a pointer to the type of
// that kind.
func (t *fieldTable) usesOf(kind string, obj any) []fieldUse {
	w := walker{}
	w.object(reflect.ValueOf(obj).Elem(), t.kinds[kind])
	return w.uses
}

type walker struct {
	path []string
	uses []fieldUse
}

// value checks a value that is not empty.
func (w *walker) value(v reflect.Value, n *node) {
	if n == nil || n.row == nil {
		w.use(v, &row{class: refused, note: "not known to this version"})
		return
	}
	if n.row.class != supported {
		if !slices.Contains(n.row.except, scalar(v)) {
			w.use(v, n.row)
		}
		return
	}
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			w.path = append(w.path, "["+strconv.Itoa(i)+"]")
			if v.Index(i).Kind() == reflect.Struct {
				w.object(v.Index(i), n)
			}
			w.path = w.path[:len(w.path)-1]
		}
	case reflect.Struct:
		w.object(v, n)
	default:
	}
}

func (w *walker) object(v reflect.Value, n *node) {
	if len(n.down) == 0 {
		return
	}
	for i, name := range fieldNames(v.Type()) {
		f := v.Field(i)
		if f.IsZero() || (f.Kind() == reflect.Slice && f.Len() == 0) || (f.Kind() == reflect.Map && f.Len() == 0) {
			continue
		}
		if name == "" {
			w.object(f, n)
			continue
		}
		w.path = append(w.path, name)
		w.value(f, n.down[name])
		w.path = w.path[:len(w.path)-1]
	}
}

// knownNames are the results of fieldNames, by type: to find them costs more than all else.
var knownNames sync.Map

// fieldNames returns the names in JSON of the fields of a struct, "" for one whose fields belong
// to the struct itself. It returns none for a type with its own form in JSON.
func fieldNames(t reflect.Type) []string {
	if known, ok := knownNames.Load(t); ok {
		list, _ := known.([]string)
		return list
	}
	var list []string
	if !decode.DecodesItself(t) {
		for i := range t.NumField() {
			name, opts, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if strings.Contains(opts, "inline") {
				name = ""
			}
			list = append(list, name)
		}
	}
	knownNames.Store(t, list)
	return list
}

func (w *walker) use(v reflect.Value, r *row) {
	what := "not supported"
	if r.class == ignored {
		what = "ignored"
	}
	if value := scalar(v); len(r.except) > 0 && value != "" {
		what = strconv.Quote(value) + " is " + what
	}
	w.uses = append(w.uses, fieldUse{Field: decode.JoinPath(w.path), Row: r.path, Refused: r.class == refused, Message: what + ": " + r.note})
}

// scalar returns the text of a single value, or "" for an object, a list or a map.
func scalar(v reflect.Value) string {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	default:
		return ""
	}
}
