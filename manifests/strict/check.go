// Package strict decodes documents into Kubernetes' types and names everything in them
// that the types do not have.
package strict

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/fault"
)

// Decoder decodes documents into Kubernetes' typed objects. The zero value is ready; it
// is safe for concurrent use.
type Decoder struct{ types types }

// Into decodes the document into obj, a pointer to a Kubernetes API type that is empty,
// and returns every unknown field, wrong type and unusable quantity. obj is whole only
// when no error is among them.
//
// What is accepted, and what becomes of it, is what sigs.k8s.io/json makes of the same
// document, the strict decoder of the API server. That one stops at the first wrong type
// and knows no lines.
func (dec *Decoder) Into(d decode.Document, obj any) fault.List {
	c := checker{types: &dec.types, doc: d}
	c.value(d.Root, reflect.ValueOf(obj).Elem())
	return c.faults
}

// checker walks a document along the value that it is to fill.
type checker struct {
	types   *types
	doc     decode.Document
	path    []string
	objects []*typeInfo // from the outermost to the one being filled
	faults  fault.List
}

// maxFaults bounds the faults of a document; a reader needs no more, and each costs a
// search for what was meant.
const maxFaults = 999

func (c *checker) full() bool { return len(c.faults) > maxFaults }

func (c *checker) fail(line int, message, hint string) {
	switch {
	case c.full():
		return
	case len(c.faults) == maxFaults:
		message, hint = "further faults are not shown", ""
	}
	f := c.doc.Fault("", message, hint)
	f.Line = line
	f.Field = decode.JoinPath(append([]string{c.doc.Prefix}, c.path...))
	c.faults = append(c.faults, f)
}

func (c *checker) push(seg string) { c.path = append(c.path, shorten(seg)) }
func (c *checker) pop()            { c.path = c.path[:len(c.path)-1] }

// value fills v, which is empty.
func (c *checker) value(n *decode.Node, v reflect.Value) {
	if n.Kind == decode.Null || c.full() {
		return
	}
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	info := c.types.of(v.Type())
	switch info.shape {
	case shapeAny:
		c.unmarshal(n, v)
	case shapeStruct:
		c.object(n, v, info)
	case shapeMap:
		c.entries(n, v, info)
	case shapeList:
		c.list(n, v)
	case shapeBytes:
		c.bytes(n, v)
	case shapeQuantity:
		c.quantity(n, v)
	default:
		c.scalar(n, v, info)
	}
}

// unmarshal leaves the value to its own UnmarshalJSON.
func (c *checker) unmarshal(n *decode.Node, v reflect.Value) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(n.JSON(), v.Addr().Interface()); err != nil {
		c.fail(n.Line, strings.TrimPrefix(err.Error(), "json: "), "")
	}
}

func (c *checker) object(n *decode.Node, v reflect.Value, info *typeInfo) {
	if !c.want(n, decode.Map, "an object") {
		return
	}
	c.objects = append(c.objects, info)
	for _, f := range n.Fields {
		c.push(f.Name)
		if field, ok := info.fields[f.Name]; ok {
			c.value(f.Value, v.FieldByIndex(field.index))
		} else if !c.full() {
			c.fail(f.Line, "unknown field", c.unknownHint(f, info))
		}
		c.pop()
	}
	c.objects = c.objects[:len(c.objects)-1]
}

func (c *checker) entries(n *decode.Node, v reflect.Value, info *typeInfo) {
	if !c.want(n, decode.Map, "a map of names to values") {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Fields)))
	for _, f := range n.Fields {
		c.push("[" + f.Name + "]")
		elem := reflect.New(info.elem).Elem()
		c.value(f.Value, elem)
		v.SetMapIndex(reflect.ValueOf(f.Name).Convert(v.Type().Key()), elem)
		c.pop()
	}
}

func (c *checker) list(n *decode.Node, v reflect.Value) {
	if !c.want(n, decode.Seq, "a list") {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
	for i, item := range n.Items {
		c.push("[" + strconv.Itoa(i) + "]")
		c.value(item, v.Index(i))
		c.pop()
	}
}

func (c *checker) scalar(n *decode.Node, v reflect.Value, info *typeInfo) {
	switch info.shape {
	case shapeString:
		if c.want(n, decode.String, "a string") {
			v.SetString(n.Text)
		}
	case shapeBool:
		if c.want(n, decode.Bool, "true or false") {
			v.SetBool(n.Text == "true")
		}
	case shapeInt:
		if c.want(n, decode.Number, "a whole number") {
			v.SetInt(c.integer(n, info.bits))
		}
	case shapeFloat:
		if c.want(n, decode.Number, "a number") {
			c.unmarshal(n, v)
		}
	case shapeIntOrString:
		c.intOrString(n, v)
	case shapeTime:
		c.time(n, v)
	case shapeAny, shapeList, shapeMap, shapeStruct, shapeBytes, shapeQuantity:
	}
}

func (c *checker) intOrString(n *decode.Node, v reflect.Value) {
	if n.Kind == decode.Number {
		v.Set(reflect.ValueOf(intstr.FromInt32(int32(c.integer(n, 32)))))
	} else if c.want(n, decode.String, "a number or a string") {
		v.Set(reflect.ValueOf(intstr.FromString(n.Text)))
	}
}

func (c *checker) time(n *decode.Node, v reflect.Value) {
	if !c.want(n, decode.String, "a time") {
		return
	}
	if _, err := time.Parse(time.RFC3339, n.Text); err != nil {
		c.fail(n.Line, fmt.Sprintf("%q is no time", n.Text), "write it like 2006-01-02T15:04:05Z")
		return
	}
	c.unmarshal(n, v)
}

func (c *checker) integer(n *decode.Node, bits int) int64 {
	i, err := strconv.ParseInt(n.Text, 10, bits)
	switch {
	case err == nil:
	case strings.ContainsAny(n.Text, ".eE"):
		c.fail(n.Line, n.Raw+" is no whole number", "")
	default:
		c.fail(n.Line, fmt.Sprintf("%s does not fit into %d bits", n.Raw, bits), "")
	}
	return i
}

func (c *checker) bytes(n *decode.Node, v reflect.Value) {
	if n.Kind == decode.Seq {
		c.unmarshal(n, v) // the JSON decoder also takes a list of byte values
		return
	}
	if !c.want(n, decode.String, "base64 text") {
		return
	}
	b, err := base64.StdEncoding.DecodeString(n.Text)
	if err != nil {
		c.fail(n.Line, "not valid base64", "put plain text under stringData")
		return
	}
	v.SetBytes(b)
}

// want says whether n is of the kind asked for, and else notes the fault.
func (c *checker) want(n *decode.Node, kind decode.Kind, what string) bool {
	if n.Kind == kind {
		return true
	}
	got := describeNode(n)
	c.fail(n.Line, fmt.Sprintf("got %s, want %s", got, what), c.typeHint(n, kind))
	return false
}

func describeNode(n *decode.Node) string {
	switch n.Kind {
	case decode.Null:
		return "null"
	case decode.Bool:
		return "a boolean (" + n.Raw + ")"
	case decode.Number:
		return "a number (" + n.Raw + ")"
	case decode.String:
		return "a string (" + strconv.Quote(shorten(n.Text)) + ")"
	case decode.Seq:
		return "a list"
	case decode.Map:
		return "an object"
	}
	return "nothing"
}

func shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// names returns the field names of an object type, sorted.
func (info *typeInfo) names() []string {
	names := make([]string, 0, len(info.fields))
	for name := range info.fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
