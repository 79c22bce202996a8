package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// pod returns a small valid pod, with more lines below its spec.
func pod(name string, more ...string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n" + strings.Join(more, "") +
		"  containers:\n  - name: c\n    image: busybox:1\n"
}

// dir makes a directory from pairs of name and content.
func dir(pairs ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i+1 < len(pairs); i += 2 {
		fsys[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return fsys
}

// Read reads the files of a directory in memory.
func Read(fsys fs.FS) (*Set, error) {
	return read(context.Background(), Options{}, func(visit func(inputFile)) { inputFS(fsys, visit) })
}

func inputFS(fsys fs.FS, visit func(inputFile)) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			panic(err)
		}
		visit(inputFile{name: e.Name(), size: info.Size(), open: func() ([]byte, Diagnostics) {
			f, err := fsys.Open(e.Name())
			if err != nil {
				panic(err)
			}
			return readAll(e.Name(), f, info.Size())
		}})
	}
}

func names(pods []*v1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

func mustRead(t *testing.T, pairs ...string) *Set {
	t.Helper()
	set, err := Read(dir(pairs...))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestReadOrderAndDefaults(t *testing.T) {
	t.Parallel()
	set := mustRead(t,
		"b.yaml", pod("b1")+"---\n"+pod("b2"),
		"a.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"x"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		"B.yaml", pod("upper"),
	)
	if d := cmp.Diff([]string{"default/upper", "x/a", "default/b1", "default/b2"}, names(set.Pods)); d != "" {
		t.Error(d)
	}
	p := set.Pods[3]
	if p.Spec.RestartPolicy != v1.RestartPolicyAlways || *p.Spec.TerminationGracePeriodSeconds != 30 {
		t.Errorf("defaults are missing: %+v", p.Spec)
	}
	if got := p.Annotations[podspec.AnnotationSource]; got != "b.yaml:9" {
		t.Errorf("source is %q", got)
	}
	if p.Annotations[annotationHash] != string(p.UID) || len(p.UID) != 36 {
		t.Errorf("uid %q, hash %q", p.UID, p.Annotations[annotationHash])
	}
	if p.Spec.NodeName != "" {
		t.Errorf("nodeName became %q", p.Spec.NodeName)
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   string
		want []string
	}{
		{"every error at once", pod("p", "  restartPolicy: never\n  schedulingGates: [{name: g}]\n  nodeNam: x\n"), []string{
			`f:5: spec.restartPolicy: Unsupported value: "never": supported values: "Always", "OnFailure", "Never" (did you mean Never?)`,
			"f:6: spec.schedulingGates: not supported: nothing here removes a gate",
			"f:7: spec.nodeNam: unknown field (did you mean nodeName?)",
		}},
		{"rules and table together", pod("p", "  restartPolicy: never\n  schedulingGates: [{name: g}]\n"), []string{
			`f:5: spec.restartPolicy: Unsupported value: "never": supported values: "Always", "OnFailure", "Never" (did you mean Never?)`,
			`f:6: spec.schedulingGates: not supported: nothing here removes a gate`,
		}},
		{"values that are whole objects", pod("p") + "    securityContext: {privileged: true, allowPrivilegeEscalation: false}\n", []string{
			"f:8: spec.containers[0].securityContext: Invalid value: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
		}},
		{"mount of a volume with an error", pod("p", "  volumes: [{name: v, hostPath: {path: /a/../b}}]\n") + "    volumeMounts: [{name: v, mountPath: /v}]\n", []string{
			`f:5: spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain '..'`,
		}},
		{"number for string", pod("p") + "    env: [{name: A, value: 8080}]\n", []string{
			`f:8: spec.containers[0].env[0].value: got a number (8080), want a string (quote it: "8080")`,
		}},
		{"second document", pod("p") + "---\n" + pod("q", "  hostPid: true\n"), []string{
			"f:13: spec.hostPid: unknown field (did you mean hostPID?)",
		}},
		{"duplicate pod", pod("p") + "---\n" + pod("p"), []string{
			`f:11: metadata.name: Pod "default/p" is already defined at f:1 (rename or remove one)`,
		}},
		{"pods without a name", strings.Repeat("---\n"+strings.Replace(pod("p"), "{name: p}", "{}", 1), 2), []string{
			"f:4: metadata.name: Required value: name or generateName is required",
			"f:12: metadata.name: Required value: name or generateName is required",
		}},
		{"given twice", pod("p") + "    image: b\n", []string{
			"f:8: spec.containers[0].image: given twice; first on line 7 (keep one of the two)",
		}},
		{"missing ConfigMap", pod("p", "  volumes: [{name: v, configMap: {name: nope}}]\n"), []string{
			`f:5: spec.volumes[0].configMap: ConfigMap "nope" is not in the input (add it to the input, or mark the reference optional)`,
		}},
		{"unknown kind", "apiVersion: v1\nkind: pod\n", []string{"f:2: kind: unknown kind pod in v1 (did you mean Pod?)"}},
		{"no kind", "spec: {}\n", []string{
			"f:1: apiVersion: Required value (a pod begins with apiVersion: v1 and kind: Pod)",
			"f:1: kind: Required value (a pod begins with apiVersion: v1 and kind: Pod)",
		}},
		{"not an object", "- a\n", []string{"f:1: not an object (a manifest begins with apiVersion and kind)"}},
		{"template", "image: {{ .Values.image }}\n", []string{
			"f:1: image: a map or list cannot be a key (looks like an unrendered template: {{ }})",
		}},
		{"unknown class", pod("p", "  priorityClassName: system-node-crit\n"), []string{
			`f:5: spec.priorityClassName: no PriorityClass named "system-node-crit" is in the input (did you mean system-node-critical?)`,
		}},
		{"class and another number", pod("p", "  priorityClassName: system-node-critical\n  priority: 5\n"), []string{
			`f:6: spec.priority: is 5, but PriorityClass "system-node-critical" has the value 2000001000 (leave it out)`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := Read(dir("f", tt.in))
			if d := cmp.Diff(tt.want, lines(err)); d != "" {
				t.Error(d)
			}
			var problems Diagnostics
			if !errors.As(err, &problems) || len(set.Invalid) == 0 {
				t.Errorf("error %T with %d invalid documents", err, len(set.Invalid))
			}
		})
	}
}

// TestErrorsAreBounded: documents with an error in every line cost little more than others.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	const n = 50_000
	var keys, fields strings.Builder
	for i := range n {
		fmt.Fprintf(&keys, "  ../%d: x\n", i)
		fmt.Fprintf(&fields, "  typo%d: x\n", i)
	}
	long := strings.Repeat("k", 1<<20)
	for _, tt := range []struct{ name, in, last string }{
		{"wrong types", pod("p") + strings.Repeat("  - {typo: 1}\n", n), "further errors are not shown"},
		{"unknown fields", pod("p", fields.String()), "further errors are not shown"},
		{"invalid keys", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n" + keys.String(), "more problems are not shown"},
		{"given twice", "apiVersion: v1\nkind: Pod\na: {" + strings.Repeat("b: 1, ", n) + "}\n", "more problems are not shown"},
		{
			"large quantities", pod("p") + "    resources: {limits: {" + strings.ReplaceAll(fields.String(), ": x\n", ": 1e30,\n") + "  cpu: 1e999999999}}\n",
			"further errors are not shown",
		},
		{"long keys", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n" + long + ": {" + strings.Repeat("b: 1, ", n) + "}\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(dir("f", tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.last) {
				t.Fatalf("no error, or none that says that there are more: %.300v", err)
			}
			if got := lines(err); len(got) > 1_010 || len(err.Error()) > 1<<20 {
				t.Errorf("%d problems, %d bytes", len(got), len(err.Error()))
			}
		})
	}
}

// TestErrorsOfManyDocuments: what an error costs does not grow with the documents around
// it. It does not run in parallel, since it counts the process's allocations.
func TestErrorsOfManyDocuments(t *testing.T) {
	const n, mebibytes = 5_000, 600 // quadratic would be gigabytes; the race detector needs more
	docs, items := "", "apiVersion: v1\nkind: List\nitems:\n"
	var b, l strings.Builder
	for i := range n {
		doc := pod(fmt.Sprintf("p%d", i)) + "    image: '{{ .x }}'\n"
		b.WriteString("---\n" + doc)
		l.WriteString("- " + strings.ReplaceAll(strings.TrimSuffix(doc, "\n"), "\n", "\n  ") + "\n")
	}
	docs, items = b.String(), items+l.String()
	for name, in := range map[string]string{"documents": docs, "items": items} {
		t.Run(name, func(t *testing.T) {
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			set, err := Read(dir("f", in))
			goruntime.ReadMemStats(&after)
			if got := lines(err); len(got) != n || len(set.Invalid) != n || len(set.Invalid[n-1].Problems) != 1 {
				t.Errorf("%d errors of %d documents", len(got), len(set.Invalid))
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > mebibytes {
				t.Errorf("allocated %d MiB, want at most %d", used, mebibytes)
			}
		})
	}
}

// TestErrorOfAnItem: items[10] is not within items[1].
func TestErrorOfAnItem(t *testing.T) {
	t.Parallel()
	in := "apiVersion: v1\nkind: PodList\nitems:\n"
	for i := range 11 {
		in += fmt.Sprintf("- {metadata: {name: p%d}, spec: {containers: [{name: c, image: i}]}}\n", i)
	}
	set, err := Read(dir("f", strings.Replace(in, "name: p10", "name: p10, name: p10", 1)))
	want := []string{"f:14: items[10].metadata.name: given twice; first on line 14 (keep one of the two)"}
	if d := cmp.Diff(want, lines(err)); d != "" || len(set.Pods) != 10 {
		t.Errorf("%d pods; %s", len(set.Pods), d)
	}
}

func TestReadPriority(t *testing.T) {
	t.Parallel()
	class := func(name, value, more string) string {
		return "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: " + name + "}\nvalue: " + value + "\n" + more
	}
	for _, tt := range []struct {
		name string
		in   string
		want int32
	}{
		{"none", pod("p"), 0},
		{"node critical", pod("p", "  priorityClassName: system-node-critical\n"), 2000001000},
		{"cluster critical", pod("p", "  priorityClassName: system-cluster-critical\n"), 2000000000},
		{"bare number", pod("p", "  priority: 7\n"), 7},
		{"class after the pod", pod("p", "  priorityClassName: high\n") + class("high", "9", ""), 9},
		{"global default", pod("p") + class("usual", "4", "globalDefault: true\n") + class("more", "5", "globalDefault: true\n"), 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := mustRead(t, "f", tt.in)
			if got := set.Pods[0].Spec.Priority; got == nil || *got != tt.want {
				t.Errorf("priority is %v, want %d", got, tt.want)
			}
		})
	}
}

func TestUID(t *testing.T) {
	t.Parallel()
	conf := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: v}\n"
	use := "  volumes: [{name: v, configMap: {name: m}}]\n"
	base := mustRead(t, "f", pod("p", use)+conf).Pods[0].UID
	for _, tt := range []struct {
		name string
		file string
		in   string
		same bool
	}{
		{"other file", "g", "# comment\n" + pod("p", use) + conf, true},
		{"default written out", "f", pod("p", use, "  restartPolicy: Always\n") + conf, true},
		{"other map, not referred to", "f", pod("p", use) + conf + strings.ReplaceAll(conf, "name: m", "name: other"), true},
		{"data changed", "f", pod("p", use) + strings.ReplaceAll(conf, "k: v", "k: w"), false},
		{"name changed", "f", pod("q", use) + conf, false},
		{"spec changed", "f", pod("p", use, "  restartPolicy: Never\n") + conf, false},
		{"priority changed", "f", pod("p", use, "  priority: 1\n") + conf, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := mustRead(t, tt.file, tt.in).Pods[0].UID
			if (got == base) != tt.same {
				t.Errorf("same uid: %t, want %t", got == base, tt.same)
			}
		})
	}
}

func TestSupportingObjects(t *testing.T) {
	t.Parallel()
	set := mustRead(t, "f", `
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
  metadata: {name: s, namespace: ns}
  data: {a: eA==, b: eA==}
  stringData: {b: new}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {k: v}}
- {apiVersion: v1, kind: Node, metadata: {name: here, labels: {disk: ssd}}, status: {capacity: {cpu: 2}}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: web}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: web2}}
`)
	s, ok := set.Secret("ns", "s")
	if !ok || string(s.Data["a"]) != "x" || string(s.Data["b"]) != "new" || s.StringData != nil {
		t.Errorf("secret: %+v", s)
	}
	if m, ok := set.ConfigMap("default", "m"); !ok || m.Data["k"] != "v" {
		t.Errorf("config map: %+v", m)
	}
	if set.Node == nil || set.Node.Status.Allocatable.Cpu().Value() != 2 {
		t.Errorf("node: %+v", set.Node)
	}
	want := []string{"f:12: items[3].kind: ServiceAccount is not supported and was ignored"}
	if d := cmp.Diff(want, lines(set.Warnings.Err())); d != "" {
		t.Error(d)
	}
}

func TestSoundPodsOfABadInput(t *testing.T) {
	t.Parallel()
	set, err := Read(dir("a", pod("good"), "b", pod("bad", "  typo: 1\n"), "c", "{"))
	if err == nil {
		t.Fatal("no error")
	}
	if d := cmp.Diff([]string{"default/good"}, names(set.Pods)); d != "" {
		t.Error(d)
	}
	if len(set.Invalid) != 2 || set.Invalid[0].Name != "bad" || set.Invalid[1].File != "c" {
		t.Errorf("invalid: %+v", set.Invalid)
	}
}

// TestGeneratedNames: five digits of a hash are the same for some of thousands of objects.
func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	set := mustRead(t, "f", listOf(5_000, func(int) string { return "apiVersion: v1\nkind: Secret\nmetadata: {generateName: s-}\n" }))
	if n := len(set.objects); n != 5_000 {
		t.Errorf("%d objects", n)
	}
}

// TestReadTwice: when two paths lead to one file, that is what has to be put right.
func TestReadTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	for path, content := range map[string]string{a: pod("p"), b: pod("q") + "---\n" + pod("p")} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		paths []string
		want  string
	}{
		{[]string{a, dir + "//a.yaml"}, dir + `//a.yaml:3: metadata.name: Pod "default/p" is already defined at ` + a + ":1 (two of the paths lead to this file)"},
		{[]string{a, b}, b + `:11: metadata.name: Pod "default/p" is already defined at ` + a + ":1 (rename or remove one)"},
	} {
		_, err := ReadPaths(t.Context(), tt.paths, Options{})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.paths, err, tt.want)
		}
	}
}
