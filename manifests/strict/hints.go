package strict

import (
	"strconv"
	"strings"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/guess"
)

func (c *checker) unknownHint(f decode.Field, info *typeInfo) string {
	for _, h := range []string{guess.Template([]byte(f.Name)), guess.Invisible([]byte(f.Name))} {
		if h != "" {
			return h
		}
	}
	for _, name := range info.names() {
		if strings.EqualFold(name, f.Name) {
			return "did you mean " + name + "?"
		}
	}
	if h := c.placeHint(f.Name, info); h != "" {
		return h
	}
	if near := guess.Nearest(f.Name, info.names()); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// placeHint looks for the object that the field belongs in: one below, or one above,
// which is where a slip of the indentation comes from.
func (c *checker) placeHint(name string, info *typeInfo) string {
	for _, sub := range info.names() {
		below := c.types.of(info.fields[sub].typ)
		if _, ok := below.fields[name]; ok {
			return "it belongs in " + sub
		}
	}
	for i := len(c.objects) - 2; i >= 0; i-- {
		if _, ok := c.objects[i].fields[name]; ok {
			return "it belongs further out: check the indentation"
		}
	}
	return ""
}

// typeHint says how to write n so that it is of the kind wanted.
func (c *checker) typeHint(n *decode.Node, want decode.Kind) string {
	if n.Kind == decode.String {
		if h := guess.Template([]byte(n.Text)); h != "" {
			return h
		}
	}
	switch want {
	case decode.String:
		return quoteHint(n)
	case decode.Number, decode.Bool:
		if strings.HasPrefix(n.Text, "$") {
			return "looks like an unrendered template: " + shorten(n.Text)
		}
		if kind, _, ok := decode.Resolve(strings.TrimSpace(n.Text)); ok && kind == want && n.Kind == decode.String {
			return "drop the quotes"
		}
	case decode.Seq:
		return c.listHint(n)
	case decode.Map:
		if n.Kind == decode.Seq {
			return "leave out the \"- \""
		}
	case decode.Null:
	}
	return ""
}

func quoteHint(n *decode.Node) string {
	switch n.Kind {
	case decode.Bool:
		return "quote it: " + strconv.Quote(n.Raw) + ", since YAML 1.1 reads " + n.Raw + " as a boolean"
	case decode.Number:
		return "quote it: " + strconv.Quote(n.Raw)
	case decode.Map:
		return "quote a text that holds \": \""
	default:
		return ""
	}
}

func (c *checker) listHint(n *decode.Node) string {
	inCommand := len(c.path) > 0 && c.path[len(c.path)-1] == "command"
	switch {
	case n.Kind == decode.Map:
		return "begin each item with \"- \""
	case n.Kind == decode.String && inCommand && strings.Contains(n.Text, " "):
		return `write a list: ["sh", "-c", ` + strconv.Quote(shorten(n.Text)) + "]"
	}
	return "write a list: [" + strconv.Quote(shorten(n.Raw)) + "]"
}

func quantityHint(n *decode.Node) string {
	if h := guess.Template([]byte(n.Text)); h != "" {
		return h
	}
	s := strings.TrimSpace(n.Text)
	lower := strings.ToLower(s)
	switch {
	case strings.ContainsAny(s, " _,"):
		return "write digits and unit without anything between them"
	case strings.HasSuffix(lower, "b"):
		return bytesHint(strings.TrimSuffix(lower, "b"))
	case strings.HasSuffix(s, "KI"), strings.HasSuffix(s, "K"):
		return "kilo is k, kibi is Ki"
	}
	return "units are m, k, M, G, T, P, E and Ki, Mi, Gi, Ti, Pi, Ei"
}

// bytesHint writes a number of bytes, such as the 128m of 128mb, as quantities: m alone
// would be thousandths.
func bytesHint(s string) string {
	s = strings.TrimSuffix(s, "i")
	digits := strings.TrimRight(s, "kmgtpe")
	if digits == s {
		return "leave out the B: " + s
	}
	binary := strings.ToUpper(s[len(digits):]) + "i"
	decimal := strings.ToUpper(s[len(digits):])
	if decimal == "K" {
		decimal = "k"
	}
	return "write " + digits + binary + " or " + digits + decimal
}
