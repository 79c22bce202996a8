// Package decode turns the bytes of a manifest file into documents whose every value
// knows its line, and documents into typed objects, strictly.
package decode

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// Limits bound what one file may cost. A zero field means the default.
type Limits struct {
	// Bytes bounds a file, and a document once its aliases are expanded; the kubelet's
	// limit for a file, 10 MiB, is the default.
	Bytes int
	// Documents bounds the documents of a file; 10,000 by default.
	Documents int
	// Depth bounds the nesting of values; 100 by default.
	Depth int
	// Marks bounds the commas, colons, dashes and line ends of a file, which bound its
	// values and so the memory to parse it; 1,000,000 by default.
	Marks int
	// Merged bounds the entries that the merge keys of a document copy; 100,000 by default.
	Merged int
}

// WithDefaults returns the limits with their zero fields filled in.
func (l Limits) WithDefaults() Limits {
	return Limits{
		Bytes: cmp.Or(l.Bytes, 10<<20), Documents: cmp.Or(l.Documents, 10_000), Depth: cmp.Or(l.Depth, 100),
		Marks: cmp.Or(l.Marks, 1_000_000), Merged: cmp.Or(l.Merged, 100_000),
	}
}

// TooLarge says that a file is larger than the limits allow.
func (l Limits) TooLarge() string { return "larger than " + mebibytes(l.Bytes) }

type reader struct {
	file      string
	limits    Limits
	documents int
	docs      []Document
	problems  Diagnostics
}

// Split reads every document of a file, JSON or YAML, and opens Lists. Empty documents
// are left out. Documents that can be read are returned along with the problems of others.
func Split(file string, data []byte, l Limits) ([]Document, Diagnostics) {
	r := &reader{file: file, limits: l.WithDefaults()}
	if f, ok := r.unreadable(data); ok {
		return nil, Diagnostics{f}
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var notJSON *Diagnostic
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		if notJSON = r.readJSON(data); notJSON == nil {
			return r.docs, r.problems
		}
	}
	for _, c := range splitYAML(data) {
		r.parseYAML(c)
		if r.documents > r.limits.Documents {
			break
		}
	}
	if notJSON != nil && len(r.docs) == 0 && strings.HasSuffix(file, ".json") {
		return nil, Diagnostics{*notJSON}
	}
	// What a writer that was interrupted leaves behind can be a sound manifest that says
	// something else.
	if len(r.docs) > 0 && bytes.IndexByte([]byte("\n\r}]\"'"), data[len(data)-1]) < 0 {
		r.problems = append(r.problems, Diagnostic{
			File: r.file, Line: lineOf(data, len(data)), Severity: SeverityWarning,
			Message: "the last line does not end with a newline", Hint: "the file may be truncated",
		})
	}
	return r.docs, r.problems
}

// lineOf returns the line of the byte at i.
func lineOf(data []byte, i int) int { return 1 + bytes.Count(data[:i], []byte{'\n'}) }

// unreadable finds what makes a file unfit to be parsed at all.
func (r *reader) unreadable(data []byte) (Diagnostic, bool) {
	f := Diagnostic{File: r.file, Severity: SeverityError}
	switch {
	case len(data) > r.limits.Bytes:
		f.Message = r.limits.TooLarge()
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		f.Message, f.Hint = "compressed data", "decompress it first"
	case bytes.HasPrefix(bytes.TrimSpace(data), []byte("<")):
		f.Message = "an HTML or XML page, not a manifest"
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		f.Message, f.Hint = "UTF-16 text", "save it as UTF-8"
	case !utf8.Valid(data) && bytes.IndexByte(data, 0) >= 0:
		f.Message, f.Hint = "binary data, not a manifest", Foreign(r.file)
	case !utf8.Valid(data):
		f.Line = lineOf(data, firstInvalid(data))
		f.Message, f.Hint = "not UTF-8 text", "save it as UTF-8"
	case bytes.IndexByte(data, 0) >= 0:
		f.Line = lineOf(data, bytes.IndexByte(data, 0))
		f.Message = "contains a NUL byte, so it is not text"
	case marks(data) > r.limits.Marks:
		f.Message = fmt.Sprintf("has more than %d values", r.limits.Marks)
	}
	return f, f.Message != ""
}

func marks(data []byte) int {
	n := 0
	for _, mark := range []byte(",\n:-[{") {
		n += bytes.Count(data, []byte{mark})
	}
	return n
}

func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		c, n := utf8.DecodeRune(data[i:])
		if c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// fail notes an error in the document that is being read.
func (r *reader) fail(line int, message, hint string) {
	r.problems = append(r.problems, Diagnostic{
		File: r.file, Document: r.documents, Line: line, Message: message, Hint: hint, Severity: SeverityError,
	})
}

func (r *reader) tooMany() bool {
	if r.documents == r.limits.Documents+1 {
		r.fail(0, fmt.Sprintf("has more than %d documents", r.limits.Documents), "")
	}
	return r.documents > r.limits.Documents
}

// add keeps a document, or the items of a List in its place. What has errors that keep it
// from being read is left out, and so is an empty one, which does not count either.
func (r *reader) add(n *yaml.Node, c *chunk) {
	conv := converter{reader: r, chunk: c, done: map[*yaml.Node]measured{}}
	switch root := conv.convert(n).node; {
	case root == nil:
	case root.kind == Null:
		r.documents--
	default:
		r.open(Document{File: r.file, Index: r.documents, Start: c.line, root: root, source: c})
	}
}

func (r *reader) open(d Document) {
	items := d.Kind("items")
	if d.Kind("") != Map || !strings.HasSuffix(d.ObjectKind(), "List") || items != Missing && items != Null && items != List {
		r.docs = append(r.docs, d)
		return
	}
	for _, e := range d.root.entries {
		switch e.name {
		case "apiVersion", "kind", "metadata":
		case "items":
			for i, item := range e.value.entries {
				sub := d
				sub.root = typed(item.value, d)
				sub.Prefix = JoinPath([]string{d.Prefix, "items", "[" + strconv.Itoa(i) + "]"})
				r.open(sub)
			}
		default:
			r.problems = append(r.problems, d.Error(e.name, "unknown field", ""))
		}
	}
}

// typed gives an item of a typed list, such as PodList, the kind that it may leave out.
func typed(item *node, list Document) *node {
	kind := strings.TrimSuffix(list.ObjectKind(), "List")
	d := Document{root: item}
	if item.kind != Map || kind == "" || d.Has("kind") || d.Has("apiVersion") {
		return item
	}
	text := func(name, s string) entry {
		return entry{name, item.line, &node{kind: String, line: item.line, text: s}}
	}
	out := *item
	out.entries = append([]entry{text("apiVersion", list.APIVersion()), text("kind", kind)}, item.entries...)
	return &out
}

// JoinPath writes a path in Kubernetes' way: a.b[0].c.
func JoinPath(segments []string) string {
	var b strings.Builder
	for _, s := range segments {
		if b.Len() > 0 && s != "" && s[0] != '[' {
			b.WriteByte('.')
		}
		b.WriteString(s)
	}
	return b.String()
}

func mebibytes(n int) string {
	if n%(1<<20) == 0 {
		return strconv.Itoa(n>>20) + " MiB"
	}
	return strconv.Itoa(n) + " bytes"
}

// chunk is a piece of a file: what stands between two document markers of YAML, or one
// JSON value.
type chunk struct {
	text []byte
	line int // of the file, counted from 1

	template string   // template of the text
	lines    [][]byte // once asked for
}

func newChunk(text []byte, line int) *chunk {
	return &chunk{text: text, line: line, template: template(text)}
}

// lineAt returns the text of a line of the file, nil when the chunk does not hold it.
func (c *chunk) lineAt(line int) []byte {
	if c.lines == nil {
		c.lines = bytes.Split(c.text, []byte{'\n'})
	}
	if i := line - c.line; i >= 0 && i < len(c.lines) {
		return c.lines[i]
	}
	return nil
}

// templateNear is template of a line, or else of the whole chunk.
func (c *chunk) templateNear(line int) string {
	return cmp.Or(template(c.lineAt(line)), c.template)
}

// splitYAML cuts a file at its "---" lines, so that an error in one document does not hide
// the next. A piece that holds only comments and directives is kept with the piece after.
func splitYAML(data []byte) []*chunk {
	var chunks []*chunk
	start, startLine, line := 0, 1, 0
	for pos := 0; pos < len(data); {
		line++
		end := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		if pos > start && isMarker(data[pos:end]) && !onlyDirectives(data[start:pos]) {
			chunks = append(chunks, newChunk(data[start:pos], startLine))
			start, startLine = pos, line
		}
		pos = end
	}
	return append(chunks, newChunk(data[start:], startLine))
}

func isMarker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

func onlyDirectives(text []byte) bool {
	directive := false
	for l := range bytes.Lines(text) {
		l = bytes.TrimSpace(l)
		if len(l) > 0 && l[0] == '%' {
			directive = true
		} else if len(l) > 0 && l[0] != '#' {
			return false
		}
	}
	return directive
}
