package decode

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// Variables returns the value of a variable, and false if it is not set.
type Variables func(name string) (string, bool)

// variables are those of one file.
type variables struct {
	lookup Variables
	size   atomic.Int64 // of all texts with variables, after their substitution
}

// reference is a variable in a text: ${NAME}, ${NAME-default} if it is not set, or ${NAME:-default} if
// it is not set or empty. "$${" stands for "${".
var reference = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?-)([^{}]*))?\}`)

// substitute gives out the text of a scalar with its variables replaced. It returns false if the
// scalar has none. Only texts are changed, after the file was parsed, so that no value can add
// anything to the document but text.
func (c *converter) substitute(out *node, n *yaml.Node) bool {
	if c.variables == nil || n.ShortTag() != "!!str" || !strings.Contains(n.Value, "${") {
		return false
	}
	out.kind, out.variable, c.substituted = String, true, true
	var b strings.Builder
	rest := n.Value
	for {
		at := strings.Index(rest, "${")
		if at < 0 {
			break
		}
		if at > 0 && rest[at-1] == '$' {
			b.WriteString(rest[:at-1] + "${")
			rest = rest[at+2:]
			continue
		}
		b.WriteString(rest[:at])
		line := c.lineIn(n, len(n.Value)-len(rest)+at)
		rest = rest[at:]
		value, length := c.value(line, rest)
		b.WriteString(value)
		rest = rest[length:]
		if c.variables.size.Add(int64(len(value))) > MaxBytes {
			c.note(line, "variables expand this file to more than 10 MiB", "")
			return true
		}
	}
	out.text = b.String() + rest
	return true
}

// value returns the value of the reference with which the text begins, and the length of the
// reference.
func (c *converter) value(line int, text string) (value string, length int) {
	m := reference.FindStringSubmatch(text)
	if m == nil {
		c.note(line, fmt.Sprintf("%q is not a variable: must be ${NAME}, ${NAME-DEFAULT} or ${NAME:-DEFAULT}", untilBrace(text)), "write $${ for ${")
		return "", len("${")
	}
	value, ok := c.variables.lookup(m[1])
	switch {
	case !ok && m[2] == "":
		c.note(line, "variable "+m[1]+" is not set", "set it, or give a default: ${"+m[1]+":-DEFAULT}")
	case !ok || value == "" && m[2] == ":-":
		value = m[3]
	case !utf8.ValidString(value):
		c.note(line, "variable "+m[1]+" is not UTF-8 text", "")
		value = ""
	}
	return value, len(m[0])
}

// untilBrace returns the text up to the first brace that closes, and not very much.
func untilBrace(text string) string {
	if end := strings.IndexByte(text, '}'); end >= 0 {
		text = text[:end+1]
	}
	return shorten(text)
}

// lineIn returns the line of a byte of the text of a scalar. Only texts with | have the same lines as
// the file.
func (c *converter) lineIn(n *yaml.Node, at int) int {
	line := c.line(n)
	if n.Style&yaml.LiteralStyle != 0 {
		line += 1 + strings.Count(n.Value[:at], "\n")
	}
	return line
}

// adapt gives texts with variables the type of their field where that is a number or a boolean.
// Elsewhere a value such as 8080 stays a string, whether it is quoted or not.
func adapt(n *node, t reflect.Type) {
	eachLeaf(n, t, func(n *node, t reflect.Type) {
		if n.variable {
			retype(n, t)
		}
	})
}

// Texts has numbers and booleans be texts, as they are written, where obj, a pointer to a type, has strings.
// Programs that read YAML into such types, and not as Kubernetes does, need no quotes there.
func Texts(d Document, obj any) {
	eachLeaf(d.root, reflect.TypeOf(obj).Elem(), func(n *node, t reflect.Type) {
		if t.Kind() == reflect.String && (n.kind == Number || n.kind == Bool) {
			n.kind = String
		}
	})
}

// eachLeaf calls visit with each value, and its type, that is not an object or a list of that type.
func eachLeaf(n *node, t reflect.Type, visit func(*node, reflect.Type)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch fields := fieldsOf(t); {
	case n.kind == Map && fields != nil:
		for _, e := range n.entries {
			if field, ok := fields[e.name]; ok {
				eachLeaf(e.value, field, visit)
			}
		}
	case n.kind == Map && t.Kind() == reflect.Map, n.kind == List && t.Kind() == reflect.Slice:
		for _, e := range n.entries {
			eachLeaf(e.value, t.Elem(), visit)
		}
	default:
		visit(n, t)
	}
}

// retype gives a text the type t, if it is written like a value of that type.
func retype(n *node, t reflect.Type) {
	n.kind = String
	want, words := expected(t)
	v, err := resolve(&yaml.Node{Kind: yaml.ScalarNode, Value: n.text})
	_, whole := v.(int)
	switch {
	case err != nil:
	case want == String && words == "a number or a string" && whole, (want == Number || want == Bool) && kindOf(v) == want:
		if literal, err := json.Marshal(v); err == nil {
			n.kind, n.literal = kindOf(v), string(literal)
		}
	}
}
