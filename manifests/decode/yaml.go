package decode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// parseYAML reads the documents of one chunk.
func (r *reader) parseYAML(c *chunk) {
	dec := yaml.NewDecoder(bytes.NewReader(c.text))
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return
		}
		r.documents++
		if err != nil {
			r.syntax(c, err)
			return
		}
		if r.tooMany() {
			return
		}
		if len(n.Content) > 0 {
			r.add(n.Content[0], c)
		}
	}
}

// syntax notes the parser's error, with the line of the file.
func (r *reader) syntax(c *chunk, err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if _, err := fmt.Sscanf(message, "line %d: ", &line); err == nil {
		_, message, _ = strings.Cut(message, ": ")
	}
	line += c.line - 1
	if _, name, ok := strings.Cut(message, "unknown anchor '"); ok {
		alias := "*" + strings.TrimSuffix(name, "' referenced")
		if at := bytes.Index(c.text, []byte(alias)); at >= 0 {
			line = c.line + lineOf(c.text, at) - 1
		}
	}
	if strings.Contains(message, "incompatible YAML document") {
		r.fail(line, "Kubernetes only reads YAML 1.1, and the directive %YAML asks for another version", "remove the directive")
		return
	}
	hint := Foreign(r.file)
	if hint == "" {
		hint = syntaxHint(c, line, message)
	}
	r.fail(line, "not valid YAML: "+message, hint)
}

// converter converts a parsed tree to what Kubernetes reads: scalars have the types of YAML
// 1.1, keys are strings, merge keys are merged, lines are those of the file. Aliases share
// the node of their anchor, so a document that expands to gigabytes is measured without
// expanding it.
type converter struct {
	*reader
	chunk  *chunk
	path   []string
	done   map[*yaml.Node]measured // anchored nodes
	merged int                     // entries copied by merge keys
	// substituted says that the document has variables.
	substituted bool
	joined      bool   // apiVersion is given twice: a line with --- is missing
	nodes       []node // for newNode
}

// newNode returns a new node. It allocates some at a time, which live as long as the document.
func (c *converter) newNode(n node) *node {
	if len(c.nodes) == cap(c.nodes) {
		c.nodes = make([]node, 0, 16)
	}
	c.nodes = append(c.nodes, n)
	return &c.nodes[len(c.nodes)-1]
}

// measured is a node with its size in JSON and its depth, aliases expanded.
type measured struct {
	*node
	size, depth int
}

func (m *measured) add(name string, line int, below measured) {
	m.entries = append(m.entries, entry{name, line, below.node})
	m.size += len(name) + 4 + below.size
	m.depth = max(m.depth, below.depth+1)
}

func (c *converter) line(n *yaml.Node) int { return c.chunk.line + max(n.Line, 1) - 1 }

// note records an error at the path.
func (c *converter) note(line int, message, hint string) {
	c.fail(line, message, hint)
	c.problems[len(c.problems)-1].Field = JoinPath(c.path)
}

// convert returns the node for n, without a node after an error.
func (c *converter) convert(n *yaml.Node) (m measured) {
	if n.Kind == yaml.AliasNode {
		m, ok := c.done[n.Alias]
		switch {
		case !ok:
			c.note(c.line(n), fmt.Sprintf("anchor %q contains itself", n.Value), "")
		case m.kind < List: // one use may change without the other
			scalar := *m.node
			m.node = &scalar
		}
		return m
	}
	m = measured{c.newNode(node{kind: List, line: c.line(n), text: n.Value}), 2 + len(n.Value), 1}
	var ok bool
	switch {
	case n.Kind == yaml.ScalarNode:
		ok = c.substitute(m.node, n) || c.scalar(m.node, n)
		m.size = 2 + len(m.text)
	case len(c.path) >= maxDepth:
		c.note(m.line, fmt.Sprintf("nested deeper than %d levels", maxDepth), "")
		return measured{}
	case n.Kind == yaml.SequenceNode:
		ok = c.sequence(&m, n)
	default:
		ok = c.mapping(&m, n)
	}
	switch {
	case !ok:
	case m.size > MaxBytes:
		c.note(m.line, "aliases expand this to more than 10 MiB", "")
	case len(c.path)+m.depth > 2*maxDepth:
		c.note(m.line, fmt.Sprintf("aliases nest this deeper than %d levels", 2*maxDepth), "")
	default:
		if n.Anchor != "" {
			c.done[n] = m
		}
		return m
	}
	return measured{}
}

// below converts the value at the next step of the path.
func (c *converter) below(n *yaml.Node, step string) measured {
	c.path = append(c.path, step[:min(len(step), 100)])
	m := c.convert(n)
	c.path = c.path[:len(c.path)-1]
	return m
}

func (c *converter) sequence(m *measured, n *yaml.Node) bool {
	m.entries = make([]entry, 0, len(n.Content))
	for i, item := range n.Content {
		below := c.below(item, "["+strconv.Itoa(i)+"]")
		if below.node == nil {
			return false
		}
		m.add("", below.line, below)
	}
	return true
}

func (c *converter) mapping(m *measured, n *yaml.Node) bool {
	m.kind, m.entries = Map, make([]entry, 0, len(n.Content)/2)
	seen := keys{of: m.node}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.ShortTag() == "!!merge" {
			merges = append(merges, v)
			continue
		}
		name, ok := c.key(k)
		if !ok {
			return false
		}
		if first, twice := seen.line(name); twice {
			c.repeated(name, c.line(k), first)
		}
		below := c.below(v, name)
		if below.node == nil {
			return false
		}
		m.add(name, c.line(k), below)
	}
	for _, from := range merges {
		if !c.merge(m, &seen, from) {
			return false
		}
	}
	return true
}

// keys finds the keys of a map.
type keys struct {
	of    *node
	lines map[string]int // of the first entries, if there are many
	known int            // how many
}

// line returns the line of the last entry of that name.
func (k *keys) line(name string) (int, bool) {
	const few = 16
	entries := k.of.entries
	if len(entries) > few {
		if k.lines == nil {
			k.lines = make(map[string]int, cap(entries))
		}
		for _, e := range entries[k.known:] {
			k.lines[e.name] = e.line
		}
		k.known = len(entries)
		line, ok := k.lines[name]
		return line, ok
	}
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].name == name {
			return entries[i].line, true
		}
	}
	return 0, false
}

// repeated notes a repeated key. Where a second document begins, it notes only the first one.
func (c *converter) repeated(name string, line, first int) {
	hint := "keep one of the two"
	if len(c.path) == 0 {
		if c.joined {
			return
		}
		if c.joined = name == "apiVersion"; c.joined {
			hint = "is a line with --- missing above it?"
		}
	}
	c.path = append(c.path, name[:min(len(name), 100)])
	c.note(line, fmt.Sprintf("given twice; first on line %d", first), hint)
	c.path = c.path[:len(c.path)-1]
}

// merge adds the entries of a "<<" value. The map's own entries take precedence, and of
// several merged maps the first one.
func (c *converter) merge(m *measured, seen *keys, from *yaml.Node) bool {
	value := c.convert(from)
	if value.node == nil {
		return false
	}
	m.size += value.size
	m.depth = max(m.depth, value.depth)
	sources := []entry{{value: value.node}}
	if value.kind == List {
		sources = value.entries
	}
	for _, s := range sources {
		if s.value.kind != Map {
			c.note(c.line(from), "a merge key (<<) needs a map or a list of maps", "")
			return false
		}
		if c.merged += len(s.value.entries); c.merged > maxMerged {
			c.note(c.line(from), fmt.Sprintf("merge keys copy more than %d entries", maxMerged), "")
			return false
		}
		for _, e := range s.value.entries {
			if _, ok := seen.line(e.name); !ok {
				m.entries = append(m.entries, e)
			}
		}
	}
	return true
}

// key returns the text of a key, as sigs.k8s.io/yaml does.
func (c *converter) key(k *yaml.Node) (name string, ok bool) {
	line := c.line(k)
	if k.Kind == yaml.AliasNode {
		k = k.Alias
	}
	if k.Kind != yaml.ScalarNode {
		c.note(line, "a map or list cannot be a key", c.chunk.templateNear(line))
		return "", false
	}
	if _, done := c.done[k]; k.Anchor != "" && !done {
		c.convert(k)
	}
	if k.Style != 0 || isText(k) {
		return k.Value, true
	}
	switch v, _ := resolve(k); v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return strconv.FormatFloat(v, 'g', -1, 32), true
		}
	}
	c.note(line, cmp.Or(k.Value, "an empty value")+" cannot be a key", "quote it")
	return "", false
}

// scalar gives the node of a scalar its kind and its text in JSON.
func (c *converter) scalar(out *node, n *yaml.Node) bool {
	if n.Tag == asWritten || n.Tag == "!!int" && n.Style == 0 && isPlain(n.Value) {
		out.kind, out.literal = Number, n.Value
		return true
	}
	if out.kind = String; isText(n) {
		return true
	}
	v, err := resolve(n)
	if out.kind = kindOf(v); out.kind == String {
		if out.text, _ = v.(string); !utf8.ValidString(out.text) {
			err = errors.New("not UTF-8")
		}
	} else if b, jsonErr := json.Marshal(v); jsonErr == nil {
		out.literal = string(b)
	} else {
		c.note(out.line, n.Value+" is not a number in JSON", "quote it if it is text")
		return false
	}
	if err != nil {
		c.note(out.line, fmt.Sprintf("%q is not %s", n.Value, n.ShortTag()), "")
	}
	return err == nil
}

// isText says whether a scalar is a string for certain.
func isText(n *yaml.Node) bool {
	_, isBool := boolean(n.Value)
	return n.Tag == "!!str" && (n.Style != 0 || !isBool)
}

// boolean reads the booleans of YAML 1.1.
func boolean(s string) (value, ok bool) {
	switch s {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE":
		return true, true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// isPlain says whether a whole number is written the same in JSON.
func isPlain(s string) bool {
	return s == "0" || s[0] != '0' && len(s) < 19 && strings.Trim(s, "0123456789") == ""
}

// resolve returns the value of a scalar as Kubernetes' YAML library reads it, which is go-yaml
// v2 behind sigs.k8s.io/yaml. Unlike v3 it has the booleans of YAML 1.1, and keeps dates as
// strings.
func resolve(n *yaml.Node) (v any, err error) {
	tag := n.ShortTag()
	if v, ok := boolean(n.Value); ok && (tag == "!!bool" && n.Style|yaml.TaggedStyle == yaml.TaggedStyle || tag == "!!str" && n.Style == 0) {
		return v, nil
	}
	switch tag {
	case "!!int", "!!float", "!!bool", "!!null", "!!binary":
		err = n.Decode(&v)
		return v, err
	}
	return n.Value, nil
}

func kindOf(v any) Kind {
	switch v.(type) {
	case nil:
		return Null
	case bool:
		return Bool
	case string:
		return String
	}
	return Number
}
