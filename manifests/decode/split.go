// Package decode turns the bytes of a manifest file into documents whose every value
// knows its line, and documents into typed objects, strictly.
package decode

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/runonce/runonce/manifests/fault"
	"github.com/runonce/runonce/manifests/guess"
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
	if l.Bytes == 0 {
		l.Bytes = 10 << 20
	}
	if l.Documents == 0 {
		l.Documents = 10_000
	}
	if l.Depth == 0 {
		l.Depth = 100
	}
	if l.Marks == 0 {
		l.Marks = 1_000_000
	}
	if l.Merged == 0 {
		l.Merged = 100_000
	}
	return l
}

type reader struct {
	file      string
	limits    Limits
	documents int
	docs      []Document
	faults    fault.List
}

// Split reads every document of a file, JSON or YAML, and opens Lists. Empty documents
// are left out. Documents that can be read are returned along with the faults of others.
func Split(file string, data []byte, l Limits) ([]Document, fault.List) {
	r := &reader{file: file, limits: l.WithDefaults()}
	if f, ok := r.unreadable(data); ok {
		return nil, fault.List{f}
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var notJSON *fault.Fault
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		if notJSON = r.readJSON(data); notJSON == nil {
			return r.docs, r.faults
		}
	}
	for _, c := range splitYAML(data) {
		r.parseYAML(c)
		if r.documents > r.limits.Documents {
			break
		}
	}
	if notJSON != nil && len(r.docs) == 0 && strings.HasSuffix(file, ".json") {
		return nil, fault.List{*notJSON}
	}
	if f, ok := r.cut(data); ok && len(r.docs) > 0 {
		r.faults = append(r.faults, f)
	}
	return r.docs, r.faults
}

// cut warns of YAML that ends in the middle of a line: what a writer that was
// interrupted leaves behind can be a sound manifest that says something else.
func (r *reader) cut(data []byte) (fault.Fault, bool) {
	if len(data) == 0 || bytes.IndexByte([]byte("\n\r}]\"'"), data[len(data)-1]) >= 0 {
		return fault.Fault{}, false
	}
	return fault.Fault{
		File: r.file, Line: 1 + bytes.Count(data, []byte{'\n'}), Severity: fault.Warning,
		Message: "the last line has no end", Hint: "the file may have been cut short",
	}, true
}

// unreadable finds what makes a file unfit to be parsed at all.
func (r *reader) unreadable(data []byte) (fault.Fault, bool) {
	f := fault.Fault{File: r.file, Severity: fault.Error}
	switch {
	case len(data) > r.limits.Bytes:
		f.Message = "larger than " + mebibytes(r.limits.Bytes)
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		f.Message, f.Hint = "compressed data", "unpack it first"
	case bytes.HasPrefix(bytes.TrimSpace(data), []byte("<")):
		f.Message = "an HTML or XML page, not a manifest"
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		f.Message, f.Hint = "UTF-16 text", "save it as UTF-8"
	case !utf8.Valid(data) && bytes.IndexByte(data, 0) >= 0:
		f.Message, f.Hint = "binary data, not a manifest", guess.Foreign(r.file)
	case !utf8.Valid(data):
		f.Line = 1 + bytes.Count(data[:firstInvalid(data)], []byte{'\n'})
		f.Message, f.Hint = "not UTF-8 text", "save it as UTF-8"
	case bytes.IndexByte(data, 0) >= 0:
		f.Line = 1 + bytes.Count(data[:bytes.IndexByte(data, 0)], []byte{'\n'})
		f.Message = "holds a NUL byte, so it is no text"
	case r.marks(data) > r.limits.Marks:
		f.Message = fmt.Sprintf("holds more than %d values", r.limits.Marks)
	default:
		return f, false
	}
	return f, true
}

func (r *reader) marks(data []byte) int {
	n := 0
	for _, b := range data {
		if b == ',' || b == '\n' || b == ':' || b == '-' || b == '[' || b == '{' {
			n++
		}
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

func (r *reader) tooMany() bool {
	if r.documents == r.limits.Documents+1 {
		r.faults = append(r.faults, fault.Fault{
			File: r.file, Document: r.documents, Severity: fault.Error,
			Message: fmt.Sprintf("holds more than %d documents", r.limits.Documents),
		})
	}
	return r.documents > r.limits.Documents
}

// add keeps a document, or the items of a List in its place.
func (r *reader) add(root *Node, c chunk) {
	if root.Kind == Null {
		r.documents--
		return
	}
	r.open(Document{File: r.file, Index: r.documents, Root: root, Text: c.text, Start: c.line})
}

func (r *reader) open(d Document) {
	items := d.Root.Get("items")
	if d.Root.Kind != Map || !strings.HasSuffix(d.ObjectKind(), "List") || (items != nil && items.Kind > Null && items.Kind != Seq) {
		r.docs = append(r.docs, d)
		return
	}
	for _, f := range d.Root.Fields {
		if f.Name != "apiVersion" && f.Name != "kind" && f.Name != "metadata" && f.Name != "items" {
			r.faults = append(r.faults, d.Fault(f.Name, "unknown field", ""))
		}
	}
	if items == nil {
		return
	}
	for i, item := range items.Items {
		sub := d
		sub.Root = typed(item, d)
		sub.Prefix = JoinPath([]string{d.Prefix, "items", "[" + strconv.Itoa(i) + "]"})
		r.open(sub)
	}
}

// typed gives an item of a typed list, such as PodList, the kind that it may leave out.
func typed(item *Node, list Document) *Node {
	kind := strings.TrimSuffix(list.ObjectKind(), "List")
	if item.Kind != Map || kind == "" || item.Get("kind") != nil || item.Get("apiVersion") != nil {
		return item
	}
	out := *item
	out.Fields = append([]Field{
		{Name: "apiVersion", Line: item.Line, Value: list.Root.Get("apiVersion")},
		{Name: "kind", Line: item.Line, Value: &Node{Kind: String, Line: item.Line, Text: kind, Raw: kind}},
	}, item.Fields...)
	if out.Fields[0].Value == nil {
		out.Fields = out.Fields[1:]
	}
	return &out
}

// measure sums up the size in JSON and the depth, from children already measured.
func (n *Node) measure() {
	n.size, n.depth = len(n.Text)+2, 1
	for _, f := range n.Fields {
		n.size += len(f.Name) + 4 + f.Value.size
		n.depth = max(n.depth, f.Value.depth+1)
	}
	for _, v := range n.Items {
		n.size += v.size + 1
		n.depth = max(n.depth, v.depth+1)
	}
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
