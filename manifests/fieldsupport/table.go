// Package fieldsupport is the table of the fields that a pod can have: what runonce does with
// each, or why it does not support it. Nothing in a manifest is ignored silently.
package fieldsupport

import (
	"strings"
)

// class says what is done with a field.
type class string

const (
	// supported fields do what they do in Kubernetes.
	supported class = "supported"
	// refused fields stop the run before anything is started.
	refused class = "refused"
	// ignored fields have no effect on a single node without an API server; a warning says so.
	ignored class = "ignored"
)

// row is what the table says of one or more fields. A refused or ignored one also speaks for
// all fields below it. An object of which only fields are listed is supported.
type row struct {
	// kind is the kind of a workload, or "" for a Pod and the pod template of a workload.
	kind string
	// path is the field's path, [] for the items of a list, {} for those of a map. With
	// fields, the row is about these fields of the object at path instead.
	path   string
	fields string
	class  class
	// note is the reason of a field that is not supported, or a remark on one that is.
	note string
	// except are the values, as text, that are supported although the field is not.
	except []string
}

// expand returns one row for each of the fields.
func (r row) expand() []row {
	if r.fields == "" {
		return []row{r}
	}
	var all []row
	for name := range strings.FieldsSeq(r.fields) {
		one := r
		one.path, one.fields = strings.TrimPrefix(r.path+"."+name, "."), ""
		all = append(all, one)
	}
	return all
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
	for _, r := range rows {
		for _, one := range r.expand() {
			t.at(one.kind, one.path).row = &one
		}
	}
	for _, pair := range alike {
		t.at("", pair[0]).copyFrom(t.at("", pair[1]))
	}
	for kind, n := range t.kinds {
		for _, shared := range []string{"apiVersion", "kind", "metadata", "status"} {
			n.down[shared] = t.kinds[""].down[shared]
		}
		n.complete(kind)
	}
	return t
}

// at returns the node of a path, which it creates if needed.
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

// field returns the node of a field, which it creates if needed.
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

// complete makes objects supported of which only fields have rows.
func (n *node) complete(kind string) {
	if n.row == nil {
		n.row = &row{kind: kind, class: supported}
	}
	for _, sub := range n.down {
		sub.complete(kind)
	}
}
