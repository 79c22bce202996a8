package decode

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/runonce/runonce/manifests/fault"
	"github.com/runonce/runonce/manifests/guess"
)

// Kind is the JSON type of a node.
type Kind uint8

// The JSON types.
const (
	Null Kind = iota
	Bool
	Number
	String
	Seq
	Map
)

// Node is a value of a document together with where it stands. Nodes that aliases refer
// to are shared, so a document is a graph without cycles.
type Node struct {
	Kind Kind
	// Line is where the value begins, counted from 1 in the file.
	Line int
	// Text is the string, or the JSON literal of a bool or number.
	Text string
	// Raw is the scalar as it was written, without quotes.
	Raw string
	// Fields are the entries of a map in their order; names are unique.
	Fields []Field
	// Items are the entries of a sequence.
	Items []*Node

	size  int // bytes of the value in JSON, aliases expanded
	depth int // levels below and including this one
}

// Field is one entry of a map.
type Field struct {
	Name  string
	Line  int
	Value *Node
}

// Get returns the value of the named entry of a map, or nil.
func (n *Node) Get(name string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Fields {
		if n.Fields[i].Name == name {
			return n.Fields[i].Value
		}
	}
	return nil
}

// Document is one object of a file: a whole document, or one item of a List.
type Document struct {
	File string
	// Index counts the documents of the file from 1.
	Index int
	// Prefix is the path of the object inside its document, for example "items[2]".
	Prefix string
	Root   *Node
	// Text is the source of the document, for hints.
	Text []byte
	// Start is the line of the file at which Text begins.
	Start int
}

// APIVersion returns the document's apiVersion, or "".
func (d Document) APIVersion() string { return d.text("apiVersion") }

// ObjectKind returns the document's kind, or "".
func (d Document) ObjectKind() string { return d.text("kind") }

// Name returns metadata.namespace and metadata.name as they are written.
func (d Document) Name() (namespace, name string) {
	meta := d.Root.Get("metadata")
	return text(meta.Get("namespace")), text(meta.Get("name"))
}

func (d Document) text(field string) string { return text(d.Root.Get(field)) }

func text(n *Node) string {
	if n == nil || n.Kind != String {
		return ""
	}
	return n.Text
}

// maxField bounds the path in a fault: a key can be megabytes long.
const maxField = 1_000

// Fault returns an error about a field of the document, with the line of the field or of
// the nearest thing above it that is written down.
func (d Document) Fault(field, message, hint string) fault.Fault {
	f := fault.Fault{
		File: d.File, Document: d.Index, Line: d.Line(field),
		Field: field[:min(len(field), maxField)], Message: message, Hint: hint, Severity: fault.Error,
	}
	if d.Prefix != "" {
		f.Field = d.Prefix
		if field != "" {
			f.Field += "." + field[:min(len(field), maxField)]
		}
	}
	return f
}

// Warning is like Fault, but does not stop the run.
func (d Document) Warning(field, message, hint string) fault.Fault {
	f := d.Fault(field, message, hint)
	f.Severity = fault.Warning
	return f
}

// Line returns the line of the field whose path is given in Kubernetes' way, for example
// spec.containers[0].env[1].name or metadata.labels[app]. Where the path leads past what
// is written, the line of the last part found is returned.
func (d Document) Line(path string) int {
	line, _ := d.find(path)
	return line
}

// Has says whether the field is written down in the document.
func (d Document) Has(path string) bool {
	_, found := d.find(path)
	return found
}

func (d Document) find(path string) (line int, found bool) {
	if d.Root == nil {
		return d.Start, false
	}
	line, node := d.Root.Line, d.Root
	for path != "" {
		var seg string
		var index bool
		seg, path, index = cutSegment(path)
		if index && node.Kind == Seq {
			i, err := strconv.Atoi(seg)
			if err != nil || i < 0 || i >= len(node.Items) {
				return line, false
			}
			node = node.Items[i]
			line = node.Line
			continue
		}
		var ok bool
		if line, node, path, ok = node.step(line, seg, path); !ok {
			return line, false
		}
	}
	return line, true
}

// step goes from a map to its entry seg. Keys may hold dots that the path does not
// quote, so longer and longer keys are tried.
func (n *Node) step(line int, seg, rest string) (int, *Node, string, bool) {
	for {
		for i := range n.Fields {
			if n.Fields[i].Name == seg {
				return n.Fields[i].Line, n.Fields[i].Value, rest, true
			}
		}
		if rest == "" {
			return line, nil, "", false
		}
		next, after, index := cutSegment(rest)
		if index {
			return line, nil, "", false
		}
		seg, rest = seg+"."+next, after
	}
}

// cutSegment splits "a.b[0].c" into "a" and "b[0].c", and "[0].c" into "0" and "c".
func cutSegment(path string) (seg, rest string, index bool) {
	if strings.HasPrefix(path, "[") {
		seg, rest, _ = strings.Cut(path[1:], "]")
		return seg, strings.TrimPrefix(rest, "."), true
	}
	if i := strings.IndexAny(path, ".["); i >= 0 {
		return path[:i], strings.TrimPrefix(path[i:], "."), false
	}
	return path, "", false
}

// NULs returns the paths of the strings below a field that hold a NUL byte.
func (d Document) NULs(field string) []string {
	n := d.Root
	for seg := range strings.SplitSeq(field, ".") {
		n = n.Get(seg)
	}
	if n == nil {
		return nil
	}
	return n.nuls(nil, field)
}

func (n *Node) nuls(found []string, path string) []string {
	if n.Kind == String && strings.IndexByte(n.Text, 0) >= 0 {
		found = append(found, path)
	}
	for _, f := range n.Fields {
		found = f.Value.nuls(found, path+"."+f.Name)
	}
	for i, v := range n.Items {
		found = v.nuls(found, path+"["+strconv.Itoa(i)+"]")
	}
	return found
}

// TemplateHint says so when the value of a field, or the whole document when the field
// is "", holds what a template engine should have replaced.
func (d Document) TemplateHint(field string) string {
	if field == "" {
		return guess.Template(d.Text)
	}
	line := d.Line(field) - d.Start
	if line < 0 {
		return ""
	}
	lines := bytes.SplitN(d.Text, []byte{'\n'}, line+2)
	if len(lines) <= line {
		return ""
	}
	return guess.Template(lines[line])
}
