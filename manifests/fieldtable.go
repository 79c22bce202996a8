package manifests

import (
	_ "embed"
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

//go:embed fields.txt
var fields string

// row is what the table says of one field.
type row struct {
	kind   string // of a workload, or "" for a Pod and the pod template of a workload
	path   string
	class  class
	note   string
	except []string // values, as text
}

// rows returns a row for each field, in the order of the table.
func rows() []row {
	var all []row
	kind := ""
	for line := range strings.Lines(fields) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '[':
			kind = strings.Trim(line, "[]")
			continue
		}
		what, note, _ := strings.Cut(line, ": ")
		what, except, _ := strings.Cut(what, " = ")
		words := strings.Fields(what)
		r := row{kind, words[1], class(words[0]), note, strings.Fields(except)}
		if len(words) == 2 {
			all = append(all, r)
		}
		for _, name := range words[2:] {
			r.path = words[1] + "." + name
			all = append(all, r)
		}
	}
	return all
}

// alike lists subtrees that are classed like another one, where no row of their own says
// otherwise.
var alike = [][2]string{
	{"spec.containers[].readinessProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].startupProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].lifecycle.postStart", "spec.containers[].lifecycle.preStop"},
	{"spec.initContainers[]", "spec.containers[]"},
}

// fieldTable knows what runonce does with each field that a pod can have, or why it does not support it:
// nothing in a manifest is ignored silently. It is safe for concurrent use.
type fieldTable struct{ kinds map[string]*node }

// node is one field of the table, with the fields below it.
type node struct {
	row  *row
	down map[string]*node
}

// New returns the table.
func newFieldTable() *fieldTable {
	t := &fieldTable{kinds: map[string]*node{}}
	for _, r := range rows() {
		t.at(r.kind, r.path).row = &r
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
func (t *fieldTable) at(kind, path string) *node {
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
