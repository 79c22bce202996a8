package decode

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// expected returns the JSON kind of a type, and words for it.
func expected(t reflect.Type) (Kind, string) {
	switch t {
	case reflect.TypeFor[intstr.IntOrString]():
		return String, "a number or a string"
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return String, "a time"
	}
	switch {
	case t.Kind() == reflect.String:
		return String, "a string"
	case t.Kind() == reflect.Bool:
		return Bool, "true or false"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return Number, "a whole number"
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		return Number, "a number"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return String, "base64 text"
	case t.Kind() == reflect.Slice:
		return List, "a list"
	case t.Kind() == reflect.Map:
		return Map, "a map of names to values"
	}
	return Map, "an object"
}

// explain says why the library does not decode a value into its type.
func (w *walker) explain(n *node, t reflect.Type, err error) (message, hint string) {
	want, words := expected(t)
	integer := n.kind == Number && (words == "a whole number" || words == "a number or a string")
	switch {
	case integer && strings.ContainsAny(n.literal, ".eE"):
		return n.text + " is not a whole number", ""
	case integer && t.Kind() == reflect.Struct:
		return n.text + " does not fit into 32 bits", ""
	case integer:
		return fmt.Sprintf("%s does not fit into %d bits", n.text, t.Bits()), ""
	case n.kind != want:
		return w.wrongKind(n, want, words)
	case words == "base64 text":
		return "not valid base64", "put plain text under stringData"
	case words == "a time":
		return fmt.Sprintf("%q is not a valid time", n.text), "write it like 2006-01-02T15:04:05Z"
	}
	return strings.TrimPrefix(err.Error(), "json: "), ""
}

func (w *walker) wrongKind(n *node, want Kind, words string) (message, hint string) {
	got := [...]string{
		Null: "null", Bool: "a boolean (" + n.text + ")", Number: "a number (" + n.text + ")",
		String: "a string (" + strconv.Quote(shorten(n.text)) + ")", List: "a list", Map: "an object",
	}[n.kind]
	return fmt.Sprintf("got %s, want %s", got, words), w.kindHint(n, want)
}

func (w *walker) unknownHint(name string, t reflect.Type) string {
	if h := cmp.Or(templateHint([]byte(name)), invisible([]byte(name))); h != "" {
		return h
	}
	known := names(t)
	if near := Nearest(name, known); near == "" || !strings.EqualFold(near, name) {
		if h := w.placeHint(name, t); h != "" {
			return h
		}
	}
	return DidYouMean(name, known)
}

// placeHint looks for the object that the field belongs in: one below, or one above, after a
// mistake in the indentation.
func (w *walker) placeHint(name string, t reflect.Type) string {
	for _, sub := range names(t) {
		if _, ok := fieldsOf(fieldsOf(t)[sub])[name]; ok {
			return "it belongs in " + sub
		}
	}
	for _, outer := range w.outer[:len(w.outer)-1] {
		if _, ok := fieldsOf(outer)[name]; ok {
			return "it belongs in an outer object: check the indentation"
		}
	}
	return ""
}

// kindHint says how to write n so that it has the wanted kind.
func (w *walker) kindHint(n *node, want Kind) string {
	if h := templateHint([]byte(n.text)); h != "" {
		return h
	}
	switch want {
	case String:
		return quoteHint(n)
	case Number, Bool:
		if strings.HasPrefix(n.text, "$") {
			return "looks like an unrendered template: " + shorten(n.text)
		}
		plain, err := resolve(&yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(n.text)})
		if n.kind == String && err == nil && kindOf(plain) == want {
			return "remove the quotes"
		}
	case List:
		return w.listHint(n)
	case Map:
		if n.kind == List {
			return "remove the \"- \""
		}
	default:
	}
	return ""
}

func quoteHint(n *node) string {
	switch n.kind {
	case Bool:
		return "quote it: " + strconv.Quote(n.text) + ", since YAML 1.1 reads " + n.text + " as a boolean"
	case Number:
		return "quote it: " + strconv.Quote(n.text)
	case Map:
		return "quote a string that contains \": \""
	default:
		return ""
	}
}

func (w *walker) listHint(n *node) string {
	inCommand := len(w.path) > 0 && w.path[len(w.path)-1] == "command"
	switch {
	case n.kind == Map:
		return "begin each item with \"- \""
	case n.kind == String && inCommand && strings.Contains(n.text, " "):
		return `write a list: ["sh", "-c", ` + strconv.Quote(shorten(n.text)) + "]"
	}
	return "write a list: [" + strconv.Quote(shorten(n.text)) + "]"
}

func quantityHint(text string) string {
	if h := templateHint([]byte(text)); h != "" {
		return h
	}
	s := strings.TrimSpace(text)
	lower := strings.ToLower(s)
	switch {
	case strings.ContainsAny(s, " _,") && strings.ContainsAny(s[:1], "0123456789+-."):
		return "write number and unit without anything in between"
	case strings.HasSuffix(lower, "b"):
		return bytesHint(strings.TrimSuffix(lower, "b"))
	case strings.HasSuffix(s, "KI"), strings.HasSuffix(s, "K"):
		return "kilo is k, kibi is Ki"
	}
	return "units are m, k, M, G, T, P, E and Ki, Mi, Gi, Ti, Pi, Ei"
}

// bytesHint writes a number of bytes, such as the 128m of 128mb, as quantities. A lone m would
// mean thousandths.
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
