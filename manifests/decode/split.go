// Package decode turns the bytes of a manifest file into documents whose every value
// knows its line, and documents into typed objects, strictly.
package decode

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// What one file may cost.
const (
	// MaxBytes bounds a file, and a document with its aliases expanded. It is the kubelet's
	// limit for a file.
	MaxBytes = 10 << 20
	// TooLarge is the message about a file with more bytes.
	TooLarge = "larger than 10 MiB"

	maxDocuments = 10_000
	maxDepth     = 100 // of nested values
	// maxValues bounds the commas, colons, dashes, brackets and lines of a file, which bound
	// its values and so the memory to parse it.
	maxValues = 1_000_000
	maxMerged = 100_000 // entries that the merge keys of a document copy
)

var byteOrderMark = []byte("\ufeff")

type reader struct {
	file      string
	variables *variables // nil to substitute none
	documents int
	docs      []Document
	problems  Diagnostics
}

// Split reads every document of a file, JSON or YAML, and replaces Lists by their items. It
// leaves out empty documents, and returns the readable ones along with the problems of others.
func Split(file string, data []byte) ([]Document, Diagnostics) {
	return SplitWith(file, data, nil)
}

// SplitWith is Split with variables, which are substituted in all texts except keys.
func SplitWith(file string, data []byte, lookup Variables) ([]Document, Diagnostics) {
	r := &reader{file: file}
	if lookup != nil {
		r.variables = &variables{lookup: lookup}
	}
	if d, ok := r.unreadable(data); ok {
		return nil, Diagnostics{d}
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	var notJSON *Diagnostic
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		if notJSON = r.readJSON(data); notJSON == nil {
			return r.docs, r.problems
		}
	}
	r.readYAML(splitYAML(data), len(data) >= LargeFile)
	if notJSON != nil && len(r.docs) == 0 && strings.HasSuffix(file, ".json") {
		return nil, Diagnostics{*notJSON}
	}
	// A truncated manifest can be valid and mean something else.
	if len(r.docs) > 0 && bytes.IndexByte([]byte("\n\r}]\"'"), data[len(data)-1]) < 0 {
		r.problems = append(r.problems, Diagnostic{
			File: r.file, Line: lineOf(data, len(data)), Severity: SeverityWarning,
			Message: "the last line does not end with a newline", Hint: "the file may be truncated",
		})
	}
	return r.docs, r.problems
}

// readYAML reads the documents of the chunks, up to the limit.
func (r *reader) readYAML(chunks []*chunk, large bool) {
	if !large {
		for i := 0; i < len(chunks) && r.documents <= maxDocuments; i++ {
			r.parseYAML(chunks[i])
		}
		return
	}
	const batch = 256 // most that is parsed in vain when there are too many documents
	for some := range slices.Chunk(chunks, batch) {
		parts := make([]reader, len(some))
		InParallel(len(some), func(i int) {
			parts[i].file, parts[i].variables = r.file, r.variables
			parts[i].parseYAML(some[i])
		})
		for i := range parts {
			if r.documents+parts[i].documents > maxDocuments {
				r.parseYAML(some[i]) // again, to the limit
				return
			}
			r.join(&parts[i])
		}
	}
}

// join adds the documents that another reader has read after those of this one.
func (r *reader) join(next *reader) {
	for i := range next.docs {
		next.docs[i].Index += r.documents
	}
	for i := range next.problems {
		next.problems[i].Document += r.documents
	}
	r.docs, r.problems = append(r.docs, next.docs...), append(r.problems, next.problems...)
	r.documents += next.documents
}

// lineOf returns the line of the byte at i.
func lineOf(data []byte, i int) int { return 1 + bytes.Count(data[:i], []byte{'\n'}) }

// unreadable says why a file cannot be parsed at all.
func (r *reader) unreadable(data []byte) (Diagnostic, bool) {
	d := Diagnostic{File: r.file, Severity: SeverityError}
	switch {
	case len(data) > MaxBytes:
		d.Message = TooLarge
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		d.Message, d.Hint = "compressed data", "decompress it first"
	case bytes.HasPrefix(bytes.TrimSpace(data), []byte("<")):
		d.Message = "an HTML or XML page, not a manifest"
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		d.Message, d.Hint = "UTF-16 text", "save it as UTF-8"
	case !utf8.Valid(data) && bytes.IndexByte(data, 0) >= 0:
		d.Message, d.Hint = "binary data, not a manifest", Foreign(r.file)
	case !utf8.Valid(data):
		d.Line = invalidLine(data)
		d.Message, d.Hint = "not UTF-8 text", "save it as UTF-8"
	case bytes.IndexByte(data, 0) >= 0:
		d.Line = lineOf(data, bytes.IndexByte(data, 0))
		d.Message = "contains a NUL byte, so it is not text"
	case countValues(data) > maxValues:
		d.Message = fmt.Sprintf("has more than %d values", maxValues)
	}
	return d, d.Message != ""
}

// countValues returns an upper bound.
func countValues(data []byte) int {
	n := 0
	for _, mark := range []byte(",\n:-[{") {
		n += bytes.Count(data, []byte{mark})
	}
	return n
}

// invalidLine returns the first line that is not UTF-8.
func invalidLine(data []byte) int {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if !utf8.Valid(text) {
			break
		}
	}
	return line
}

// fail notes an error in the document that is being read.
func (r *reader) fail(line int, message, hint string) {
	r.problems = append(r.problems, Diagnostic{
		File: r.file, Document: r.documents, Line: line, Message: message, Hint: hint, Severity: SeverityError,
	})
}

func (r *reader) tooMany() bool {
	if r.documents == maxDocuments+1 {
		r.fail(0, fmt.Sprintf("has more than %d documents", maxDocuments), "")
	}
	return r.documents > maxDocuments
}

// add keeps a document, or instead of a List its items. It leaves out unreadable documents,
// and empty ones, which do not count either.
func (r *reader) add(n *yaml.Node, c *chunk) {
	conv := converter{reader: r, chunk: c, done: map[*yaml.Node]measured{}}
	switch root := conv.convert(n).node; {
	case root == nil:
	case root.kind == Null:
		r.documents--
	default:
		r.addItems(Document{File: r.file, Index: r.documents, Start: c.line, root: root, source: c, Aliased: len(conv.done) > 0, variables: conv.substituted})
	}
}

// isList says whether a document is a List, or one of objects of one kind. A custom resource may have
// such a name, too: it has a spec or other items.
func (d Document) isList() bool {
	items := d.Kind("items")
	return strings.HasSuffix(d.ObjectKind(), "List") && (items == List || items == Null || items == Missing && !d.Has("spec"))
}

// addItems keeps a document, or the items of a List and of Lists inside it.
func (r *reader) addItems(d Document) {
	if !d.isList() {
		d.rejected = map[*node]bool{}
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
				r.addItems(sub)
			}
		default:
			r.problems = append(r.problems, d.Error(e.name, UnknownField, ""))
		}
	}
}

// typed gives an item of a typed list, such as PodList, the kind that it may omit.
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

// chunk is a piece of a file: the text between two document markers of YAML, or one JSON
// value.
type chunk struct {
	text []byte
	line int // of the file, counted from 1

	template string // the hint of templateHint for the whole text
	split    sync.Once
	lines    [][]byte
}

func newChunk(text []byte, line int) *chunk {
	return &chunk{text: text, line: line, template: templateHint(text)}
}

// lineAt returns the text of a line of the file, nil when it is not in the chunk.
func (c *chunk) lineAt(line int) []byte {
	c.split.Do(func() { c.lines = bytes.Split(c.text, []byte{'\n'}) })
	if i := line - c.line; i >= 0 && i < len(c.lines) {
		return c.lines[i]
	}
	return nil
}

// templateNear returns the hint of templateHint for a line, or else for the whole chunk.
func (c *chunk) templateNear(line int) string {
	return cmp.Or(templateHint(c.lineAt(line)), c.template)
}

// splitYAML splits a file at its "---" lines, so that an error in one document does not hide
// the next. A piece with only comments and directives stays with the next one.
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
			chunks = append(chunks, newChunk(withoutMark(data[start:pos]), startLine))
			start, startLine = pos, line
		}
		pos = end
	}
	return append(chunks, newChunk(withoutMark(data[start:]), startLine))
}

// withoutMark removes the byte order mark of a document, which is in the middle of a file that
// was made of several ones: before or after the line with ---.
func withoutMark(text []byte) []byte {
	text = bytes.TrimPrefix(text, byteOrderMark)
	marker, rest, _ := bytes.Cut(text, []byte{'\n'})
	if isMarker(marker) && bytes.HasPrefix(rest, byteOrderMark) {
		return slices.Concat(marker, []byte{'\n'}, rest[len(byteOrderMark):])
	}
	return text
}

func isMarker(line []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimPrefix(line, byteOrderMark), []byte("---"))
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
