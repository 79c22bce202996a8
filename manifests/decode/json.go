package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/runonce/runonce/manifests/fault"
)

// jsonReader builds Nodes from a stream of JSON values. YAML covers most of JSON, but not
// surrogate pairs, tabs, and several values in a row.
type jsonReader struct {
	*reader
	data   []byte
	dec    *json.Decoder
	offset int // up to which lines are counted
	lineNo int
	path   []string
	faults fault.List
}

var errDepth = errors.New("nested too deep")

// readJSON reads the whole file as a stream of JSON objects. An error means that it is
// something else, perhaps YAML, and nothing was kept of it.
func (r *reader) readJSON(data []byte) *fault.Fault {
	j := &jsonReader{reader: r, data: data, dec: json.NewDecoder(bytes.NewReader(data)), lineNo: 1}
	j.dec.UseNumber()
	before, documents := len(r.docs), r.documents
	for {
		start, startLine := int(j.dec.InputOffset()), j.line()
		if !j.dec.More() && j.atEnd() {
			r.faults = append(r.faults, j.faults...)
			return nil
		}
		root, err := j.value()
		if err != nil && !errors.Is(err, errDepth) {
			r.docs, r.documents = r.docs[:before], documents
			if errors.Is(err, io.EOF) {
				err = errors.New("it ends in the middle of a value")
			}
			return &fault.Fault{
				File: r.file, Line: j.line(), Severity: fault.Error,
				Message: "not valid JSON: " + strings.TrimPrefix(err.Error(), "json: "),
			}
		}
		r.documents++
		if err != nil {
			r.faults = append(r.faults, fault.Fault{
				File: r.file, Document: r.documents, Line: j.line(), Severity: fault.Error,
				Message: fmt.Sprintf("nested deeper than %d levels", r.limits.Depth),
			})
			return nil
		}
		if r.tooMany() {
			return nil
		}
		r.add(root, chunk{data[start:j.dec.InputOffset()], startLine})
	}
}

// atEnd says whether nothing but space is left.
func (j *jsonReader) atEnd() bool {
	return len(bytes.TrimSpace(j.data[j.dec.InputOffset():])) == 0
}

func (j *jsonReader) line() int {
	now := int(j.dec.InputOffset())
	j.lineNo += bytes.Count(j.data[j.offset:now], []byte{'\n'})
	j.offset = now
	return j.lineNo
}

func (j *jsonReader) value() (*Node, error) {
	t, err := j.dec.Token()
	if err != nil {
		return nil, err
	}
	node := &Node{Line: j.line()}
	switch v := t.(type) {
	case nil:
		node.Kind, node.Text = Null, "null"
	case bool:
		node.Kind, node.Text = Bool, strconv.FormatBool(v)
	case json.Number:
		node.Kind, node.Text = Number, v.String()
	case string:
		node.Kind, node.Text = String, v
	case json.Delim:
		if len(j.path) >= j.limits.Depth {
			return nil, errDepth
		}
		if v == '[' {
			err = j.array(node)
		} else {
			err = j.object(node)
		}
	}
	if err != nil {
		return nil, err
	}
	node.Raw = node.Text
	node.measure()
	return node, nil
}

func (j *jsonReader) array(node *Node) error {
	node.Kind = Seq
	for i := 0; j.dec.More(); i++ {
		j.path = append(j.path, "["+strconv.Itoa(i)+"]")
		v, err := j.value()
		if err != nil {
			return err
		}
		j.path = j.path[:len(j.path)-1]
		node.Items = append(node.Items, v)
	}
	_, err := j.dec.Token()
	return err
}

func (j *jsonReader) object(node *Node) error {
	node.Kind = Map
	seen := map[string]int{}
	for j.dec.More() {
		t, err := j.dec.Token()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if !ok {
			return fmt.Errorf("object key %v is no string", t)
		}
		line := j.line()
		j.path = append(j.path, name)
		if first, dup := seen[name]; dup {
			j.faults = append(j.faults, fault.Fault{
				File: j.file, Document: j.documents + 1, Line: line, Severity: fault.Error,
				Field: JoinPath(j.path), Message: fmt.Sprintf("given twice; first on line %d", first),
				Hint: "keep one of the two",
			})
		}
		seen[name] = line
		v, err := j.value()
		if err != nil {
			return err
		}
		j.path = j.path[:len(j.path)-1]
		node.Fields = append(node.Fields, Field{Name: name, Line: line, Value: v})
	}
	_, err := j.dec.Token()
	return err
}
