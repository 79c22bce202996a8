package containerd

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultHandler is the handler of pods without a RuntimeClass.
const DefaultHandler = "runc"

const (
	shimPrefix = "containerd-shim-"
	// runcType is the runtime type of containerd that our own shim implements.
	runcType = "io.containerd.runc.v2"
)

// Handler is a container runtime that the handler of a RuntimeClass refers to.
type Handler struct {
	Name string
	// Binary is an OCI runtime with runc's command line, a path or a name to be looked up,
	// which runs under our own shim. It is empty for other shims, and for runc's type without
	// a program, which means the one that is chosen for the machine.
	Binary string
	// Shim is a shim that is not ours: the path of its program, or a runtime type such as
	// io.containerd.kata.v2 whose program containerd looks up.
	Shim string
	// ConfigPath and TypeURL are options of such a shim.
	ConfigPath string
	TypeURL    string
}

// parseHandler parses name=type[,option=value...]. The type is a runtime type of containerd, the path
// of a program called containerd-shim-..., or an OCI runtime with runc's command line. The
// options have the names that they have in containerd's configuration.
func parseHandler(text string) (Handler, error) {
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
	options := map[string]*string{"BinaryName": &h.Binary}
	if h.Shim != "" {
		options = map[string]*string{"ConfigPath": &h.ConfigPath, "TypeUrl": &h.TypeURL}
	}
	for _, o := range fields[1:] {
		key, value, ok := strings.Cut(o, "=")
		if !ok || options[key] == nil {
			return h, fmt.Errorf("%q: unknown option %q: must be one of %s", text, o, strings.Join(slices.Sorted(maps.Keys(options)), ", "))
		}
		*options[key] = value
	}
	return h, nil
}

// ParseHandlers parses handlers with different names.
func ParseHandlers(texts []string) ([]Handler, error) {
	all := make([]Handler, 0, len(texts))
	for _, text := range texts {
		h, err := parseHandler(text)
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

// HandlerNames returns the names of the handlers and of the default one, sorted.
func HandlerNames(all []Handler) []string {
	names := append(make([]string, 0, len(all)+1), DefaultHandler)
	for _, h := range all {
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Program returns the path of the shim's program, or the name that containerd derives from
// its runtime type (pkg/shim.BinaryName).
func (h Handler) Program() string {
	if filepath.IsAbs(h.Shim) {
		return h.Shim
	}
	parts := strings.Split(h.Shim, ".")
	return shimPrefix + parts[len(parts)-2] + "-" + parts[len(parts)-1]
}
