// Package imports_test holds the table of which package may reach which, through all that its
// imports import in turn.
package imports_test

import (
	"slices"
	"strings"
	"testing"
)

const module = "github.com/runonce/runonce"

// ban says that no package below it may reach a package that begins with one of the
// prefixes.
type ban struct {
	pkg      string   // and those below it
	except   []string // packages below it that may
	prefixes []string
	why      string
}

func bans() []ban {
	return []ban{
		{
			pkg: "", except: []string{"/runtime/containerd", "/runtime/shim", "/runonce/cmd", "/hack", ""},
			prefixes: []string{"github.com/containerd/containerd"},
			why:      "only runtime/containerd and runtime/shim speak to containerd, and runonce/cmd wires them",
		},
		{
			pkg: "", except: []string{"/manifests", "/runonce/cmd", "/hack", ""},
			prefixes: []string{"k8s.io/kubernetes"},
			why:      "only manifests knows the API server's rules, and runonce/cmd reads manifests",
		},
		{
			pkg:      "/internal",
			prefixes: []string{module},
			why:      "internal is what all may import",
		},
		{
			pkg: "/runtime/engine", except: []string{"/runtime/engine/enginetest"},
			prefixes: []string{module},
			why:      "engine is the vocabulary of whoever speaks of containers",
		},
		{
			pkg:      "/manifests",
			prefixes: []string{module + "/admit", module + "/runonce", module + "/runtime", "github.com/vishvananda"},
			why:      "manifests turns files into objects and knows no node",
		},
		{
			pkg:      "/manifests/decode",
			prefixes: []string{module + "/internal", "k8s.io/kubernetes"},
			why:      "decode knows documents and no rules",
		},
		{
			pkg:      "/manifests/fieldsupport",
			prefixes: []string{module + "/internal", module + "/manifests/validation", "k8s.io/kubernetes"},
			why:      "a table of fields knows no rules",
		},
		{
			pkg:      "/admit",
			prefixes: []string{module + "/manifests", module + "/runonce", module + "/runtime", "os/exec"},
			why:      "admit is pure",
		},
		{
			pkg: "/runonce", except: []string{"/runonce/cmd"},
			prefixes: []string{module + "/manifests", module + "/runtime"},
			why:      "runonce owns the interface that runtime satisfies",
		},
		{
			pkg:      "/runtime",
			prefixes: []string{module + "/manifests", module + "/admit", module + "/runonce", "github.com/urfave/cli"},
			why:      "runtime runs the pod that it is given",
		},
		{
			pkg:      "/runtime/shim/runonce-shim",
			prefixes: []string{"k8s.io", "github.com/containerd/containerd/v2/client", module + "/runtime/containerd"},
			why:      "a shim is started twice for each container, so it must stay slim",
		},
	}
}

func TestImports(t *testing.T) {
	t.Parallel()
	deps := dependencies(t)
	for _, b := range bans() {
		found := false
		for pkg, reached := range deps {
			if !b.holds(pkg) {
				continue
			}
			found = true
			for _, dep := range reached {
				if slices.ContainsFunc(b.prefixes, func(p string) bool { return below(dep, p) }) {
					t.Errorf("%s reaches %s: %s", pkg, dep, b.why)
				}
			}
		}
		if !found {
			t.Errorf("no package %q", b.pkg)
		}
	}
}

// holds tells whether the ban is for the package. The program's own package, which sees
// all through runonce/cmd, is the exception "".
func (b ban) holds(pkg string) bool {
	return below(pkg, module+b.pkg) && !slices.ContainsFunc(b.except, func(path string) bool {
		return pkg == module+path || path != "" && below(pkg, module+path)
	})
}

func below(pkg, dir string) bool {
	return pkg == dir || strings.HasPrefix(pkg, dir+"/")
}

// dependencies returns, for each package of the module, all that it reaches.
func dependencies(t *testing.T) map[string][]string {
	t.Helper()
	out := golist(t, "-f", "{{.ImportPath}} {{join .Deps \" \"}}", module+"/...")
	deps := map[string][]string{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		deps[f[0]] = f[1:]
	}
	return deps
}
