// Package runtimeclass knows the container runtimes that the handlers of RuntimeClasses stand
// for.
package runtimeclass

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Default is the handler of pods without a RuntimeClass.
const Default = "runc"

// The options of a handler, named as in containerd's configuration.
const (
	optionBinary = "BinaryName" // of runc's shim: the OCI runtime
	optionConfig = "ConfigPath" // of other shims: their configuration file
	optionType   = "TypeUrl"    // of other shims: the type of their options
)

const (
	shimPrefix = "containerd-shim-"
	// runcType is the type whose shim ours is.
	runcType = "io.containerd.runc.v2"
)

// Handler is one container runtime.
type Handler struct {
	Name string
	// Binary is the program of an OCI runtime with runc's command line, a path or a name to
	// be looked up; it runs under our own shim. It is empty for other shims, and for runc's
	// type without a program, which means runc.
	Binary string
	// Shim is a shim that is not ours: the path of its program, or a type such as
	// io.containerd.kata.v2 whose program containerd looks up.
	Shim string
	// ConfigPath and TypeURL are options of such a shim.
	ConfigPath string
	TypeURL    string
}

// Parse reads name=type[,option=value...]. The type is a type of containerd's, the path of a
// program called containerd-shim-..., or an OCI runtime with runc's command line.
func Parse(text string) (Handler, error) {
	name, rest, ok := strings.Cut(text, "=")
	h := Handler{Name: name}
	if !ok || name == "" {
		return h, fmt.Errorf("%q: must be NAME=TYPE[,OPTION=VALUE...]", text)
	}
	fields := strings.Split(rest, ",")
	switch typ := fields[0]; {
	case typ == "":
		return h, fmt.Errorf("%q: the type is missing", text)
	case typ == runcType:
	case strings.HasPrefix(path.Base(typ), shimPrefix):
		if !filepath.IsAbs(typ) {
			return h, fmt.Errorf("%q: the path of a shim must be absolute", text)
		}
		h.Shim = typ
	case !strings.Contains(typ, "/") && strings.Count(typ, ".") >= 2:
		h.Shim = typ
	default:
		h.Binary = typ
	}
	return h, h.setOptions(fields[1:], text)
}

func (h *Handler) setOptions(options []string, text string) error {
	known := map[string]*string{optionBinary: &h.Binary}
	if h.Shim != "" {
		known = map[string]*string{optionConfig: &h.ConfigPath, optionType: &h.TypeURL}
	}
	for _, o := range options {
		key, value, ok := strings.Cut(o, "=")
		into := known[key]
		if !ok || into == nil {
			return fmt.Errorf("%q: no option %q; this type has %s", text, o, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		*into = value
	}
	return nil
}

// ParseAll reads several, each with a name of its own.
func ParseAll(texts []string) ([]Handler, error) {
	all := make([]Handler, 0, len(texts))
	for _, text := range texts {
		h, err := Parse(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(o Handler) bool { return o.Name == h.Name }) {
			return nil, fmt.Errorf("%q: handler %q is given twice", text, h.Name)
		}
		all = append(all, h)
	}
	return all, nil
}

// Names returns the names of the handlers and of the default one, sorted.
func Names(all []Handler) []string {
	names := append(make([]string, 0, len(all)+1), Default)
	for _, h := range all {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Program is the name of the program that serves a shim: that of its path, or the one that
// containerd makes of a type (pkg/shim.BinaryName).
func (h Handler) Program() string {
	if filepath.IsAbs(h.Shim) {
		return h.Shim
	}
	parts := strings.Split(h.Shim, ".")
	return shimPrefix + parts[len(parts)-2] + "-" + parts[len(parts)-1]
}
