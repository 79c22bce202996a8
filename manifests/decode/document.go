package decode

import (
	"strconv"
	"strings"
)

// Kind is the JSON type of a value.
type Kind uint8

// The JSON types; Missing is the kind of an absent value.
const (
	Missing Kind = iota
	Null
	Bool
	Number
	String
	List
	Map
)

// node is a value of a document with its line. Nodes that aliases refer to are shared, so a
// document is an acyclic graph.
type node struct {
	kind    Kind
	line    int    // of the file
	text    string // the string, or another scalar as it is written
	literal string // null, a boolean or a number in JSON
	// variable says that variables were substituted in the text.
	variable bool
	entries  []entry
}

// entry is an item of a list, or a field of a map, with the line of its name.
type entry struct {
	name  string
	line  int
	value *node
}

// Document is one object of a file: a whole document, or one item of a List.
type Document struct {
	File string
	// Index counts the documents of the file from 1.
	Index int
	// Prefix is the path of the object inside its document, for example "items[2]".
	Prefix string
	// Start is the line of the file at which the document begins.
	Start int
	// Aliased says that items of the same List may share values, so that they must not be
	// decoded in parallel.
	Aliased bool

	root   *node
	source *chunk
	// variables says that variables were substituted.
	variables bool
	rejected  map[*node]bool // values that do not have the type of their field
	wrong     []Wrong
}

// APIVersion returns the document's apiVersion, or "".
func (d Document) APIVersion() string { return d.Text("apiVersion") }

// ObjectKind returns the document's kind, or "".
func (d Document) ObjectKind() string { return d.Text("kind") }

// Text returns the string at the path, or "".
func (d Document) Text(path string) string {
	if _, n := d.find(path); n != nil && n.kind == String {
		return n.text
	}
	return ""
}

// Kind returns the kind of the value at the path.
func (d Document) Kind(path string) Kind {
	if _, n := d.find(path); n != nil {
		return n.kind
	}
	return Missing
}

// Keys returns the names of the document's fields.
func (d Document) Keys() []string {
	if d.Kind("") != Map {
		return nil
	}
	names := make([]string, len(d.root.entries))
	for i, e := range d.root.entries {
		names[i] = e.name
	}
	return names
}

// maxField bounds a path in a Diagnostic: a key can be megabytes long.
const maxField = 1_000

// Error returns an error about a field of the document, with the line of the field or, if it is
// absent, of the nearest object above it.
func (d Document) Error(field, message, hint string) Diagnostic {
	line := d.Line(field)
	field = JoinPath([]string{d.Prefix, field[:min(len(field), maxField)]})
	return Diagnostic{File: d.File, Document: d.Index, Line: line, Field: field, Message: message, Hint: hint, Severity: SeverityError}
}

// Warning is like Error, but does not stop the run.
func (d Document) Warning(field, message, hint string) Diagnostic {
	w := d.Error(field, message, hint)
	w.Severity = SeverityWarning
	return w
}

// Line returns the line of the field at a path like spec.containers[0].env[1].name or
// metadata.labels[app]. If it is absent, it returns the line of the last part found.
func (d Document) Line(path string) int {
	line, _ := d.find(path)
	return line
}

// Has says whether the document has the field.
func (d Document) Has(path string) bool { return d.Kind(path) != Missing }

// find returns the value at the path, nil when it is absent, and the line of the last part
// found.
func (d Document) find(path string) (line int, n *node) {
	if d.root == nil {
		return d.Start, nil
	}
	line, n = d.root.line, d.root
	for path != "" {
		var seg string
		var index bool
		seg, path, index = cutSegment(path)
		if index && n.kind == List {
			i, err := strconv.Atoi(seg)
			if err != nil || i < 0 || i >= len(n.entries) {
				return line, nil
			}
			line, n = n.entries[i].line, n.entries[i].value
			continue
		}
		var e entry
		if e, path = n.entry(seg, path); e.value == nil {
			return line, nil
		}
		line, n = e.line, e.value
	}
	return line, n
}

// entry returns the entry seg of a map. Keys may contain dots that the path does not quote, so
// it tries longer and longer keys.
func (n *node) entry(seg, rest string) (found entry, after string) {
	for n.kind == Map {
		for _, e := range n.entries {
			if e.name == seg {
				return e, rest
			}
		}
		next, after, index := cutSegment(rest)
		if rest == "" || index {
			break
		}
		seg, rest = seg+"."+next, after
	}
	return entry{}, ""
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

// NULs returns the paths of the strings below a field that contain a NUL byte.
func (d Document) NULs(field string) []string {
	_, n := d.find(field)
	if n == nil {
		return nil
	}
	paths := n.nuls()
	for i := range paths {
		paths[i] = field + paths[i]
	}
	return paths
}

func (n *node) nuls() (paths []string) {
	if n.kind == String && strings.IndexByte(n.text, 0) >= 0 {
		paths = append(paths, "")
	}
	for i, e := range n.entries {
		for _, path := range e.value.nuls() {
			at := "." + e.name
			if n.kind == List {
				at = "[" + strconv.Itoa(i) + "]"
			}
			paths = append(paths, at+path)
		}
	}
	return paths
}

// TemplateHint returns a hint when a template engine should have replaced something in the
// line of a field, or in the whole document when the field is "".
func (d Document) TemplateHint(field string) string {
	if field == "" || d.source.template == "" {
		return d.source.template
	}
	return templateHint(d.source.lineAt(d.Line(field)))
}
