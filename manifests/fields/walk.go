package fields

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Use is a field that a pod sets and that is not supported, or not with this value.
type Use struct {
	// Field is the path in the pod, with the indices of its lists.
	Field string
	// Value is the text of a single value, "" for an object or list.
	Value string
	Row   Row
}

// Classes answers what is to be said of a pod's fields. It is safe for concurrent use.
type Classes struct{ kinds map[string]*node }

// node is one field of the table, with the fields below it.
type node struct {
	row  *Row
	down map[string]*node
}

// New returns the classes of the table.
func New() *Classes {
	c := &Classes{kinds: map[string]*node{}}
	table := Table()
	for i := range table {
		c.at(table[i].Kind, table[i].Path).row = &table[i]
	}
	for _, pair := range alike {
		c.at("", pair[0]).copyFrom(c.at("", pair[1]))
	}
	for kind, n := range c.kinds {
		for _, shared := range []string{"apiVersion", "kind", "metadata", "status"} {
			if kind != "" {
				n.down[shared] = c.kinds[""].down[shared]
			}
		}
	}
	return c
}

// at returns the node of a path, which it makes where there is none.
func (c *Classes) at(kind, path string) *node {
	n := c.kinds[kind]
	if n == nil {
		n = &node{}
		c.kinds[kind] = n
	}
	for seg := range strings.SplitSeq(path, ".") {
		name := strings.TrimRight(seg, "[]{}")
		if n.down == nil {
			n.down = map[string]*node{}
		}
		if n.down[name] == nil {
			n.down[name] = &node{}
		}
		n = n.down[name]
	}
	return n
}

func (n *node) copyFrom(other *node) {
	if n.row == nil {
		n.row = other.row
	}
	for name, sub := range other.down {
		if n.down == nil {
			n.down = map[string]*node{}
		}
		if n.down[name] == nil {
			n.down[name] = &node{}
		}
		n.down[name].copyFrom(sub)
	}
}

// Uses returns the fields of the pod that are refused or meaningless, in the order of
// the type's fields. The pod must be as it was written, without defaults.
func (c *Classes) Uses(pod *v1.Pod) []Use { return c.UsesOf("", pod) }

// UsesOf is like Uses for a workload, whose pod template is left out. obj is a pointer to
// the type of that kind.
func (c *Classes) UsesOf(kind string, obj any) []Use {
	w := walker{}
	w.object(reflect.ValueOf(obj).Elem(), c.kinds[kind])
	return w.uses
}

// Of returns the row of a Pod's field.
func (c *Classes) Of(path string) Row {
	n := c.kinds[""]
	for seg := range strings.SplitSeq(path, ".") {
		if n != nil {
			n = n.down[strings.TrimRight(seg, "[]{}")]
		}
	}
	if n != nil && n.row != nil {
		return *n.row
	}
	return Row{Path: path, Class: Refused, Note: "not known to this version"}
}

type walker struct {
	path []string
	uses []Use
}

// value looks at a value that is not empty.
func (w *walker) value(v reflect.Value, n *node) {
	if n == nil || n.row == nil {
		w.use(v, Row{Class: Refused, Note: "not known to this version"})
		return
	}
	if n.row.Class != Supported {
		if !slices.Contains(n.row.Except, scalar(v)) {
			w.use(v, *n.row)
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
	if len(n.down) == 0 || selfDecoding(t) {
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

func (w *walker) use(v reflect.Value, row Row) {
	w.uses = append(w.uses, Use{Field: join(w.path), Value: scalar(v), Row: row})
}

func selfDecoding(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
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

func join(path []string) string {
	var b strings.Builder
	for _, s := range path {
		if b.Len() > 0 && s[0] != '[' {
			b.WriteByte('.')
		}
		b.WriteString(s)
	}
	return b.String()
}

// Message says what is the matter with the field and why.
func (u Use) Message() string {
	what := "refused"
	if u.Row.Class == Meaningless {
		what = "has no meaning here"
	}
	if len(u.Row.Except) > 0 && u.Value != "" {
		what = fmt.Sprintf("%s %s", strconv.Quote(u.Value), what)
	}
	return what + ": " + u.Row.Note
}
