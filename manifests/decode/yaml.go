package decode

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"

	"github.com/runonce/runonce/manifests/fault"
	"github.com/runonce/runonce/manifests/guess"
)

// chunk is a piece of a YAML file between two document markers.
type chunk struct {
	text []byte
	line int // of the file, counted from 1
}

// splitYAML cuts a file at its "---" lines, so that a fault in one document does not hide
// the next. A piece that holds only comments and directives is kept with the piece after.
func splitYAML(data []byte) []chunk {
	var chunks []chunk
	start, startLine, line := 0, 1, 0
	for pos := 0; pos < len(data); {
		line++
		end := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		if pos > start && isMarker(data[pos:end]) && !onlyDirectives(data[start:pos]) {
			chunks = append(chunks, chunk{data[start:pos], startLine})
			start, startLine = pos, line
		}
		pos = end
	}
	return append(chunks, chunk{data[start:], startLine})
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

// parseYAML reads the documents of one chunk. Faults carry the line of the file.
func (r *reader) parseYAML(c chunk) {
	dec := yaml.NewDecoder(bytes.NewReader(c.text))
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return
		}
		r.documents++
		if err != nil {
			r.faults = append(r.faults, r.syntax(c, err))
			return
		}
		if r.tooMany() {
			return
		}
		conv := converter{reader: r, chunk: c, done: map[*yaml.Node]*Node{}}
		if root := conv.convert(&n); root != nil && !conv.failed {
			r.add(root, c)
		}
	}
}

func (r *reader) syntax(c chunk, err error) fault.Fault {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := c.line
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if num, msg, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(num); err == nil {
				line, message = c.line+n-1, msg
			}
		}
	}
	if _, name, ok := strings.Cut(message, "unknown anchor '"); ok {
		alias := "*" + strings.TrimSuffix(name, "' referenced")
		if at := bytes.Index(c.text, []byte(alias)); at >= 0 {
			line = c.line + bytes.Count(c.text[:at], []byte{'\n'})
		}
	}
	hint := guess.Syntax(c.text, line-c.line, message)
	if foreign := guess.Foreign(r.file); foreign != "" {
		hint = foreign
	}
	return fault.Fault{
		File: r.file, Document: r.documents, Line: line, Severity: fault.Error,
		Message: "not valid YAML: " + message, Hint: hint,
	}
}

// converter turns a YAML tree into Nodes. Aliases share the Node of their anchor, so that
// a document that expands to gigabytes is measured without being expanded.
type converter struct {
	*reader
	chunk  chunk
	path   []string
	done   map[*yaml.Node]*Node // anchored nodes, once converted
	merged int                  // entries copied by merge keys
	anew   bool                 // apiVersion is given twice
	failed bool
}

// fail notes a fault after which the document cannot be read on.
func (c *converter) fail(n *yaml.Node, message, hint string) *Node {
	c.failed = true
	c.note(n, message, hint)
	return nil
}

func (c *converter) note(n *yaml.Node, message, hint string) {
	c.faults = append(c.faults, fault.Fault{
		File: c.file, Document: c.documents, Line: c.line(n), Severity: fault.Error,
		Field: JoinPath(c.path), Message: message, Hint: hint,
	})
}

func (c *converter) line(n *yaml.Node) int { return c.chunk.line + max(n.Line, 1) - 1 }

func (c *converter) convert(n *yaml.Node) *Node {
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil
		}
		return c.convert(n.Content[0])
	case yaml.AliasNode:
		node := c.done[n.Alias]
		if node == nil {
			if c.failed {
				return nil
			}
			return c.fail(n, fmt.Sprintf("anchor %q contains itself", n.Value), "")
		}
		return node
	case yaml.ScalarNode:
		return c.remember(n, c.scalar(n))
	case yaml.SequenceNode, yaml.MappingNode:
		if len(c.path) >= c.limits.Depth {
			return c.fail(n, fmt.Sprintf("nested deeper than %d levels", c.limits.Depth), "")
		}
		if n.Kind == yaml.SequenceNode {
			return c.remember(n, c.sequence(n))
		}
		return c.remember(n, c.mapping(n))
	}
	return c.fail(n, "not a YAML value", "")
}

// remember measures the node, and keeps it when an alias may come back to it.
func (c *converter) remember(n *yaml.Node, node *Node) *Node {
	if node == nil {
		return nil
	}
	node.measure()
	if node.size > c.limits.Bytes {
		return c.fail(n, fmt.Sprintf("aliases expand this to more than %s", mebibytes(c.limits.Bytes)), "")
	}
	if len(c.path)+node.depth > 2*c.limits.Depth {
		return c.fail(n, fmt.Sprintf("aliases nest this deeper than %d levels", 2*c.limits.Depth), "")
	}
	if n.Anchor != "" {
		c.done[n] = node
	}
	return node
}

func (c *converter) sequence(n *yaml.Node) *Node {
	node := &Node{Kind: Seq, Line: c.line(n), Items: make([]*Node, 0, len(n.Content))}
	for i, item := range n.Content {
		c.path = append(c.path, "["+strconv.Itoa(i)+"]")
		v := c.convert(item)
		c.path = c.path[:len(c.path)-1]
		if v == nil {
			return nil
		}
		node.Items = append(node.Items, v)
	}
	return node
}

func (c *converter) mapping(n *yaml.Node) *Node {
	node := &Node{Kind: Map, Line: c.line(n), Fields: make([]Field, 0, len(n.Content)/2)}
	seen := make(map[string]int, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if isMerge(k) {
			merges = append(merges, v)
			continue
		}
		name, ok := c.key(k)
		if !ok {
			return nil
		}
		c.path = append(c.path, name[:min(len(name), 100)])
		if first, dup := seen[name]; dup {
			c.twice(k, name, first)
		}
		seen[name] = c.line(k)
		value := c.convert(v)
		c.path = c.path[:len(c.path)-1]
		if value == nil {
			return nil
		}
		node.Fields = append(node.Fields, Field{Name: name, Line: c.line(k), Value: value})
	}
	for _, m := range merges {
		if !c.merge(node, seen, m) {
			return nil
		}
	}
	return node
}

// twice notes a key that is there already. A document that begins anew is said once.
func (c *converter) twice(k *yaml.Node, name string, first int) {
	hint := "keep one of the two"
	if len(c.path) == 1 {
		if c.anew {
			return
		}
		if c.anew = name == "apiVersion"; c.anew {
			hint = "is a line with --- missing above it?"
		}
	}
	c.note(k, fmt.Sprintf("given twice; first on line %d", first), hint)
}

func isMerge(k *yaml.Node) bool {
	return k.Kind == yaml.ScalarNode && k.Value == "<<" && (k.Style == 0 || k.Tag == "!!merge")
}

// merge adds the entries of a "<<" value: what the map itself says wins, and of several
// merged maps the first one.
func (c *converter) merge(node *Node, seen map[string]int, from *yaml.Node) bool {
	value := c.convert(from)
	if value == nil {
		return false
	}
	sources := []*Node{value}
	if value.Kind == Seq {
		sources = value.Items
	}
	for _, s := range sources {
		if s.Kind != Map {
			c.fail(from, "a merge key (<<) needs a map or a list of maps", "")
			return false
		}
		if c.merged += len(s.Fields); c.merged > c.limits.Merged {
			c.fail(from, fmt.Sprintf("merge keys copy more than %d entries", c.limits.Merged), "")
			return false
		}
		for _, f := range s.Fields {
			if _, ok := seen[f.Name]; !ok {
				seen[f.Name] = f.Line
				node.Fields = append(node.Fields, f)
			}
		}
	}
	return true
}

func (c *converter) key(k *yaml.Node) (string, bool) {
	if k.Kind == yaml.AliasNode {
		k = k.Alias
	}
	if k.Kind != yaml.ScalarNode {
		c.fail(k, "a map or list cannot be a key", guess.TemplateNear(c.chunk.text, c.line(k)-c.chunk.line))
		return "", false
	}
	if k.Anchor != "" {
		c.remember(k, c.scalar(k))
	}
	if k.Style != 0 {
		return k.Value, true
	}
	name, ok := resolveKey(k.Value)
	if !ok {
		c.fail(k, fmt.Sprintf("%s cannot be a key", quoteEmpty(k.Value)), "quote it")
	}
	return name, ok
}

func quoteEmpty(s string) string {
	if s == "" {
		return "an empty value"
	}
	return s
}

func (c *converter) scalar(n *yaml.Node) *Node {
	node := &Node{Kind: String, Line: c.line(n), Text: n.Value, Raw: n.Value}
	if n.Style&yaml.TaggedStyle != 0 {
		return c.tagged(n, node)
	}
	if n.Style != 0 {
		return node
	}
	var ok bool
	if node.Kind, node.Text, ok = Resolve(n.Value); !ok {
		return c.fail(n, n.Value+" is not a number that JSON knows", "quote it if text is meant")
	}
	return node
}

// tagged resolves a scalar with an explicit tag, such as !!str 8080.
func (c *converter) tagged(n *yaml.Node, node *Node) *Node {
	want := map[string]Kind{"!!int": Number, "!!float": Number, "!!bool": Bool, "!!null": Null}
	tag := n.ShortTag()
	if tag == "!!binary" {
		b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
		if err != nil || !utf8.Valid(b) {
			return c.fail(n, "!!binary needs base64 of UTF-8 text", "")
		}
		node.Text = string(b)
		return node
	}
	kind, isCore := want[tag]
	if !isCore {
		return node
	}
	var ok bool
	if node.Kind, node.Text, ok = Resolve(n.Value); !ok || node.Kind != kind {
		return c.fail(n, fmt.Sprintf("%q is not %s", n.Value, tag), "")
	}
	return node
}
