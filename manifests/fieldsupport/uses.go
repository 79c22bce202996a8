package fieldsupport

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// Use is a field that an object sets and that is not supported, or not with this value.
type Use struct {
	// Field is the path in the object, with the indices of its lists.
	Field string
	// Row is the path in the table, the same for all items of a list.
	Row string
	// Refused fields are errors, the others have no meaning here.
	Refused bool
	// Message says what is the matter with the field and why.
	Message string
}

// Table knows what is supported. It is safe for concurrent use.
type Table struct{ kinds map[string]*node }

// node is one field of the table, with the fields below it.
type node struct {
	row  *row
	down map[string]*node
}

// New returns the table.
func New() *Table {
	t := &Table{kinds: map[string]*node{}}
	for _, r := range rows() {
		t.at(r.kind, r.path).row = &r
	}
	for _, pair := range alike {
		t.at("", pair[0]).copyFrom(t.at("", pair[1]))
	}
	for kind, n := range t.kinds {
		for _, shared := range []string{"apiVersion", "kind", "metadata", "status"} {
			if kind != "" {
				n.down[shared] = t.kinds[""].down[shared]
			}
		}
	}
	return t
}

// at returns the node of a path, which it makes where there is none.
func (t *Table) at(kind, path string) *node {
	n := t.kinds[kind]
	if n == nil {
		n = &node{}
		t.kinds[kind] = n
	}
	for seg := range strings.SplitSeq(path, ".") {
		n = n.field(strings.TrimRight(seg, "[]{}"))
	}
	return n
}

// field returns the node of a field, which it makes where there is none.
func (n *node) field(name string) *node {
	if n.down == nil {
		n.down = map[string]*node{}
	}
	if n.down[name] == nil {
		n.down[name] = &node{}
	}
	return n.down[name]
}

func (n *node) copyFrom(other *node) {
	if n.row == nil {
		n.row = other.row
	}
	for name, sub := range other.down {
		n.field(name).copyFrom(sub)
	}
}

// Uses returns the fields of the pod that are refused or meaningless, in the order of
// the type's fields. The pod must be as it was written, without defaults.
func (t *Table) Uses(pod *v1.Pod) []Use { return t.UsesOf("", pod) }

// UsesOf is like Uses for a workload, whose pod template is left out. obj is a pointer to
// the type of that kind.
func (t *Table) UsesOf(kind string, obj any) []Use {
	w := walker{}
	w.object(reflect.ValueOf(obj).Elem(), t.kinds[kind])
	return w.uses
}

type walker struct {
	path []string
	uses []Use
}

// value looks at a value that is not empty.
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
	t := v.Type()
	if len(n.down) == 0 || decode.DecodesItself(t) {
		return
	}
	for i := range t.NumField() {
		name, opts, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		f := v.Field(i)
		if f.IsZero() || (f.Kind() == reflect.Slice && f.Len() == 0) || (f.Kind() == reflect.Map && f.Len() == 0) {
			continue
		}
		if name == "" || strings.Contains(opts, "inline") {
			w.object(f, n)
			continue
		}
		w.path = append(w.path, name)
		w.value(f, n.down[name])
		w.path = w.path[:len(w.path)-1]
	}
}

func (w *walker) use(v reflect.Value, r *row) {
	what := "refused"
	if r.class == meaningless {
		what = "has no meaning here"
	}
	if value := scalar(v); len(r.except) > 0 && value != "" {
		what = strconv.Quote(value) + " " + what
	}
	w.uses = append(w.uses, Use{Field: decode.JoinPath(w.path), Row: r.path, Refused: r.class == refused, Message: what + ": " + r.note})
}

// scalar returns the text of a single value, or "" when v is something larger.
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
