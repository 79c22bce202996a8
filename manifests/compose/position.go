package compose

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

// place is where something is in a compose file: the keys that lead to it. An item of a list is named by what is in it.
type place []string

// at returns a place below this one.
func (p place) at(keys ...string) place { return append(slices.Clone(p), keys...) }

// String returns the keys with points between them, and items of lists in brackets.
func (p place) String() string {
	var b strings.Builder
	for i, key := range p {
		switch {
		case strings.HasPrefix(key, "["):
			b.WriteString(key)
		case i > 0:
			b.WriteString("." + key)
		default:
			b.WriteString(key)
		}
	}
	return b.String()
}

// item is the key of an item of a list.
func item(text string) string { return "[" + text + "]" }

// source is the text of a compose file.
type source struct {
	name string // as messages show it
	path string
	text []byte
	root *yaml.Node // nil if the text is not YAML
}

// sources are the files of a project: those that come later override those before them.
type sources []source

// readSources returns the files, with those that they include and extend. What cannot be read is left out: the lines are for
// messages, and it is the loader that complains.
func readSources(files []types.ConfigFile, show func(path string) string) sources {
	var all sources
	seen := map[string]bool{}
	var add func(path string, text []byte)
	add = func(path string, text []byte) {
		if seen[path] {
			return
		}
		seen[path] = true
		s := source{name: show(path), path: path, text: text}
		var document yaml.Node
		if yaml.NewDecoder(bytes.NewReader(text)).Decode(&document) == nil && len(document.Content) == 1 {
			s.root = document.Content[0]
		}
		for _, other := range references(s.root) {
			if !filepath.IsAbs(other) {
				other = filepath.Join(filepath.Dir(path), other)
			}
			if text, err := os.ReadFile(other); err == nil {
				add(other, text) // before this file, which overrides it
			}
		}
		all = append(all, s)
	}
	for _, f := range files {
		add(f.Filename, f.Content)
	}
	return all
}

// references returns the files that a compose file includes or extends.
func references(root *yaml.Node) (paths []string) {
	if include := child(root, "include"); include != nil {
		for _, i := range include.Content {
			paths = append(paths, scalars(i)...)
			paths = append(paths, scalars(child(i, "path"))...)
		}
	}
	services := child(root, "services")
	for _, name := range keys(services) {
		paths = append(paths, scalars(child(child(child(services, name), "extends"), "file"))...)
	}
	return paths
}

// scalars returns the text of a scalar, or of those in a list.
func scalars(n *yaml.Node) []string {
	n = resolved(n)
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}
	case n.Kind == yaml.SequenceNode:
		var all []string
		for _, c := range n.Content {
			if c.Kind == yaml.ScalarNode {
				all = append(all, c.Value)
			}
		}
		return all
	}
	return nil
}

// find returns the file and line of a place, or of the nearest one around it that is in a file.
func (s sources) find(p place) (name string, line int) {
	for n := len(p); n > 0; n-- {
		if name, line = s.exact(p[:n]); line > 0 {
			return name, line
		}
		if n > 2 && p[0] == "services" {
			if name, line = s.extended(p[:n]); line > 0 {
				return name, line
			}
		}
	}
	if len(s) == 0 {
		return "", 0
	}
	return s[len(s)-1].name, 0
}

func (s sources) exact(p place) (name string, line int) {
	for _, f := range slices.Backward(s) {
		if line := lineOf(f.root, p); line > 0 {
			return f.name, line
		}
	}
	return "", 0
}

// extended looks for the place in the services that the service extends.
func (s sources) extended(p place) (name string, line int) {
	seen := map[string]bool{p[1]: true}
	service := p[1]
	for {
		if service = s.base(service); service == "" || seen[service] {
			return "", 0
		}
		seen[service] = true
		if name, line = s.exact(place{"services", service}.at(p[2:]...)); line > 0 {
			return name, line
		}
	}
}

// base returns the name of the service that another one extends.
func (s sources) base(service string) string {
	for _, f := range slices.Backward(s) {
		extends := child(child(child(f.root, "services"), service), "extends")
		for _, name := range append(scalars(extends), scalars(child(extends, "service"))...) {
			return name
		}
	}
	return ""
}

// lineOf returns the line of the last key of a place, 0 if it is not there.
func lineOf(n *yaml.Node, p place) int {
	line := 0
	for _, key := range p {
		n = resolved(n)
		if n == nil {
			return 0
		}
		if text, ok := strings.CutPrefix(key, "["); ok {
			i := slices.IndexFunc(n.Content, func(c *yaml.Node) bool { return mentions(c, strings.TrimSuffix(text, "]"), visited{}) })
			if n.Kind != yaml.SequenceNode || i < 0 {
				return 0
			}
			n = n.Content[i]
			line = n.Line
			continue
		}
		k, value := entry(n, key, visited{})
		if k == nil {
			return 0
		}
		line, n = k.Line, value
	}
	return line
}

// visited are the nodes that a search has seen: a node may contain itself.
type visited map[*yaml.Node]bool

// mentions says whether an item of a list is about the text: between colons, or in the value of a key.
func mentions(n *yaml.Node, text string, seen visited) bool {
	if n = resolved(n); seen[n] {
		return false
	}
	seen[n] = true
	if n.Kind != yaml.ScalarNode {
		return slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return mentions(c, text, seen) })
	}
	parts := strings.FieldsFunc(n.Value, func(r rune) bool { return strings.ContainsRune(":=/", r) })
	return n.Value == text || slices.Contains(parts, text) || slices.Contains(strings.Split(n.Value, ":"), text)
}

// entry returns the key and the value in a mapping, also in one that is merged into it. In a list, it is the item KEY or KEY=VALUE.
func entry(n *yaml.Node, key string, seen visited) (k, value *yaml.Node) {
	if n = resolved(n); n == nil || seen[n] {
		return nil, nil
	}
	seen[n] = true
	if n.Kind == yaml.SequenceNode {
		for _, c := range n.Content {
			if name, _, _ := strings.Cut(c.Value, "="); c.Kind == yaml.ScalarNode && name == key {
				return c, nil
			}
		}
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	for _, m := range merged(n) {
		if k, value = entry(m, key, seen); k != nil {
			return k, value
		}
	}
	return nil, nil
}

// merged returns the mappings that a mapping has merged into it.
func merged(n *yaml.Node) (all []*yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			continue
		}
		of := resolved(n.Content[i+1])
		if of.Kind == yaml.SequenceNode {
			all = append(all, of.Content...)
			continue
		}
		all = append(all, of)
	}
	return all
}

func child(n *yaml.Node, key string) *yaml.Node {
	if n = resolved(n); n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	_, value := entry(n, key, visited{})
	return value
}

// keys returns those of a mapping.
func keys(n *yaml.Node) (names []string) {
	if n = resolved(n); n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		names = append(names, n.Content[i].Value)
	}
	return names
}

// resolved returns the node that an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// lineOfVariable returns where a variable is first used.
func (s sources) lineOfVariable(variable string) (name string, line int) {
	for _, f := range s {
		for i, text := range bytes.Split(f.text, []byte("\n")) {
			for _, form := range []string{"${" + variable, "$" + variable} {
				if _, rest, ok := strings.Cut(string(text), form); ok && (rest == "" || !isNameByte(rest[0])) {
					return f.name, i + 1
				}
			}
		}
	}
	return "", 0
}

func isNameByte(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}
