package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// jsonReader builds trees from a stream of JSON values. The YAML parser reads most of JSON, but
// not surrogate pairs, long keys, numbers as written, and several values in a row.
type jsonReader struct {
	data   []byte
	dec    *json.Decoder
	offset int // up to which lines are counted
	lines  int
	start  int // the line at which the value begins
}

// asWritten is the tag of a number in a JSON file, which is kept as it is written.
const asWritten = "!json"

var errDepth = errors.New("nested too deep")

// readJSON reads the whole file as a stream of JSON values. On an error, which means that it is
// something else, perhaps YAML, it keeps nothing.
func (r *reader) readJSON(data []byte) *Diagnostic {
	j := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), lines: 1}
	j.dec.UseNumber()
	for {
		start := int(j.dec.InputOffset())
		j.start = j.line()
		if !j.dec.More() && len(bytes.TrimSpace(data[start:])) == 0 {
			return nil
		}
		root, err := j.value(maxDepth)
		if err != nil && !errors.Is(err, errDepth) {
			r.docs, r.problems, r.documents = nil, nil, 0
			if errors.Is(err, io.EOF) {
				err = errors.New("the file ends in the middle of a value")
			}
			return &Diagnostic{
				File: r.file, Line: j.line(), Severity: SeverityError,
				Message: "not valid JSON: " + strings.TrimPrefix(err.Error(), "json: "),
			}
		}
		r.documents++
		if err != nil {
			r.fail(j.line(), fmt.Sprintf("nested deeper than %d levels", maxDepth), "")
			return nil
		}
		if r.tooMany() {
			return nil
		}
		r.add(root, newChunk(data[start:j.dec.InputOffset()], j.start))
	}
}

// line returns the line that the decoder has reached.
func (j *jsonReader) line() int {
	now := int(j.dec.InputOffset())
	j.lines += bytes.Count(j.data[j.offset:now], []byte{'\n'})
	j.offset = now
	return j.lines
}

func (j *jsonReader) value(depth int) (*yaml.Node, error) {
	t, err := j.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Line: j.line() - j.start + 1}
	switch v := t.(type) {
	case nil:
		n.Tag, n.Value = "!!null", "null"
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	case json.Number:
		n.Tag, n.Value = asWritten, v.String()
	case string:
		n.Tag, n.Value = "!!str", v
	case json.Delim:
		if depth == 0 {
			return nil, errDepth
		}
		n.Kind = yaml.SequenceNode
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		for j.dec.More() { // names and values of an object alternate
			child, err := j.value(depth - 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err = j.dec.Token()
	}
	return n, err
}

// encoder writes a tree as JSON, aliases expanded.
type encoder struct {
	buf []byte
	// large says that a value may be a quantity that is too large to count with.
	large bool
	// skip are values to leave out.
	skip map[*node]bool
}

// JSON returns the document as JSON, aliases expanded.
func (d Document) JSON() []byte {
	var e encoder
	e.value(d.root)
	return e.buf
}

func (e *encoder) value(n *node) {
	switch n.kind {
	case List:
		e.buf = append(e.buf, '[')
		for i, f := range n.entries {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			if e.skip[f.value] { // the items after it keep their places
				e.buf = append(e.buf, "null"...)
				continue
			}
			e.value(f.value)
		}
		e.buf = append(e.buf, ']')
	case Map:
		e.buf = append(e.buf, '{')
		first := true
		for _, f := range n.entries {
			if e.skip[f.value] {
				continue
			}
			if !first {
				e.buf = append(e.buf, ',')
			}
			first = false
			e.string(f.name)
			e.buf = append(e.buf, ':')
			e.value(f.value)
		}
		e.buf = append(e.buf, '}')
	case String:
		e.string(n.text)
		e.large = e.large || isLarge(n.text)
	default:
		e.buf = append(e.buf, n.literal...)
		e.large = e.large || isLarge(n.literal)
	}
}

// string writes a JSON string; the library writes those with characters to escape.
func (e *encoder) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s)
			e.buf = append(e.buf, quoted...)
			return
		}
	}
	e.buf = append(append(append(e.buf, '"'), s...), '"')
}
