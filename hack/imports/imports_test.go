// Package imports_test checks which packages may depend on which, directly or transitively.
package imports_test

import (
	"slices"
	"strings"
	"testing"
)

const module = "github.com/runonce/runonce"

// ban forbids a package, and those below it, to depend on packages with one of the prefixes.
type ban struct {
	pkg      string
	except   []string // packages that may, and those below them
	prefixes []string
	why      string
}

func bans() []ban {
	return []ban{
		{
			pkg: "", except: []string{"/runtime/containerd", "/runonce/cmd", "/hack", "/internal/testing", ""},
			prefixes: []string{"github.com/containerd/containerd"},
			why:      "only runtime/containerd uses containerd, and runonce/cmd uses it",
		},
		{
			pkg: "", except: []string{"/manifests", "/runonce/cmd", "/hack", "/internal/testing", ""},
			prefixes: []string{"k8s.io/kubernetes"},
			why:      "only manifests uses the API server's rules, and runonce/cmd uses manifests",
		},
		{
			pkg: "", except: []string{"/runtime/cluster", "/runonce/cmd", "/hack", "/internal/testing", ""},
			prefixes: []string{"k8s.io/client-go/rest", "k8s.io/client-go/tools"},
			why:      "only runtime/cluster uses the API of a cluster, and runonce/cmd uses it",
		},
		{
			pkg:      "",
			prefixes: []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic"},
			why:      "the typed clients and the dynamic one make the program much larger",
		},
		{
			pkg:      "/runtime/cluster",
			prefixes: []string{module + "/admit", module + "/manifests", module + "/runonce", module + "/runtime/record"},
			why:      "a cluster only runs the pods that it is given, and keeps no records on this machine",
		},
		{
			pkg:      "",
			prefixes: []string{"github.com/invopop/jsonschema", "github.com/santhosh-tekuri/jsonschema"},
			why:      "only tests need schemas",
		},
		{
			pkg: "", except: []string{"", "/internal/startup"},
			prefixes: []string{module + "/internal/startup"},
			why:      "it turns the garbage collector off, and only main turns it on again",
		},
		{
			pkg: "/internal", except: []string{"/internal/testing"},
			prefixes: []string{module},
			why:      "every package may import internal",
		},
		{
			pkg: "/runtime/engine", except: []string{"/runtime/engine/enginetest"},
			prefixes: []string{module + "/admit", module + "/manifests", module + "/runonce", module + "/runtime"},
			why:      "engine only has the types that all engines share",
		},
		{
			pkg:      "/manifests",
			prefixes: []string{module + "/admit", module + "/runonce", module + "/runtime", "github.com/vishvananda"},
			why:      "manifests turns files into objects and must not depend on the node",
		},
		{
			pkg:      "/manifests/decode",
			prefixes: []string{module + "/internal", "k8s.io/kubernetes"},
			why:      "decode must not depend on validation rules",
		},
		{
			pkg:      "/admit",
			prefixes: []string{module + "/manifests", module + "/runonce", module + "/runtime", "os/exec"},
			why:      "admit is pure",
		},
		{
			pkg: "/runonce", except: []string{"/runonce/cmd"},
			prefixes: []string{module + "/manifests/validation", module + "/runtime"},
			why:      "runonce gets a plan and owns the Runtime interface: it must not import what reads files, nor an implementation",
		},
		{
			pkg:      "/runonce/cmd/backend",
			prefixes: []string{module + "/manifests", module + "/admit", "github.com/urfave/cli"},
			why:      "backend connects the engine and the machine, and knows no commands",
		},
		{
			pkg:      "/runonce/cmd/progress",
			prefixes: []string{module + "/manifests/validation", module + "/runtime/containerd", "github.com/urfave/cli"},
			why:      "progress only shows events",
		},
		{
			pkg:      "/runtime",
			prefixes: []string{module + "/manifests", module + "/admit", module + "/runonce", "github.com/urfave/cli"},
			why:      "runtime only runs the pods it is given",
		},
		{
			pkg: "/runtime/shim",
			prefixes: []string{
				"google.golang.org", "net/http", "crypto/tls", "github.com/godbus", "github.com/cilium", "github.com/containerd", "k8s.io",
				module + "/runtime/containerd",
			},
			why: "a shim is started for each pod, so it must stay small",
		},
	}
}

func TestImports(t *testing.T) {
	t.Parallel()
	deps := dependencies(t)
	for _, b := range bans() {
		found := false
		for pkg, reached := range deps {
			if !b.covers(pkg) {
				continue
			}
			found = true
			for _, dep := range reached {
				if slices.ContainsFunc(b.prefixes, func(p string) bool { return below(dep, p) }) {
					t.Errorf("%s depends on %s: %s", pkg, dep, b.why)
				}
			}
		}
		if !found {
			t.Errorf("no package %q", b.pkg)
		}
	}
}

// covers tells whether the ban is for the package. The exception "" is the main package, which
// depends on everything through runonce/cmd.
func (b ban) covers(pkg string) bool {
	return below(pkg, module+b.pkg) && !slices.ContainsFunc(b.except, func(path string) bool {
		return pkg == module+path || path != "" && below(pkg, module+path)
	})
}

func below(pkg, dir string) bool {
	return pkg == dir || strings.HasPrefix(pkg, dir+"/")
}

// dependencies returns, for each package of the module, its direct and transitive imports.
func dependencies(t *testing.T) map[string][]string {
	t.Helper()
	out := golist(t, module, "-f", "{{.ImportPath}} {{join .Deps \" \"}}", module+"/...")
	deps := map[string][]string{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		deps[f[0]] = f[1:]
	}
	return deps
}
