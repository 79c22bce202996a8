package decode

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// someVariables are set in the tests.
func someVariables(name string) (string, bool) {
	value, ok := map[string]string{
		"TAG": "1.27", "N": "3", "PORT": "8080", "ON": "true", "EMPTY": "", "EVIL": "x\", \"y\": [1]\n- z: {}\n", "REF": "${TAG}",
		"_a1": "under", "BAD": "\xff", "BIG": strings.Repeat("x", 1<<20),
	}[name]
	return value, ok
}

func TestSubstitute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want, problem string }{
		{in: "a: image:${TAG}-${N}\n", want: `{"a":"image:1.27-3"}`},
		{in: "a: ${N}\nb: \"${N}\"\nc: '${N}'\n", want: `{"a":"3","b":"3","c":"3"}`},
		{in: "a: ${_a1}\n", want: `{"a":"under"}`},
		{in: "a: ${NONE:-x y}|${NONE-z}|${NONE:-}|${NONE-}\n", want: `{"a":"x y|z||"}`},
		{in: "a: ${EMPTY:-x}|${EMPTY-y}|${EMPTY}\n", want: `{"a":"x||"}`},
		{in: "a: ${TAG:-x}\n", want: `{"a":"1.27"}`},
		{in: "a: $${TAG} $$${TAG} $$ $TAG $(TAG) $$(TAG) $ ${TAG}\n", want: `{"a":"${TAG} $${TAG} $$ $TAG $(TAG) $$(TAG) $ 1.27"}`},
		{in: "a: ${REF}\n", want: `{"a":"${TAG}"}`},
		{in: "a: ${EVIL}\n", want: `{"a":"x\", \"y\": [1]\n- z: {}\n"}`},
		{in: "${TAG}: ${TAG}\n", want: `{"${TAG}":"1.27"}`},
		{in: "a: &x ${TAG}\nb: *x\n", want: `{"a":"1.27","b":"1.27"}`},
		{in: `{"a": "${TAG}", "b": 3}`, want: `{"a":"1.27","b":3}`},
		{in: "a: # ${NONE}\n- b\n", want: `{"a":["b"]}`},
		{in: "x: 1\na:\n- ${NONE}\n", problem: "f:3: a[0]: variable NONE is not set (set it, or give a default: ${NONE:-DEFAULT})"},
		{in: "a: |\n  one\n  two ${NONE}\n", problem: "f:3: a: variable NONE is not set"},
		{in: "a:\n  b: ${NONE}\n  c: ${NONE2}\n", problem: "f:3: a.c: variable NONE2 is not set"},
		{in: "a: ${x%y}\n", problem: `f:1: a: "${x%y}" is not a variable: must be ${NAME}, ${NAME-DEFAULT} or ${NAME:-DEFAULT} (write $${ for ${)`},
		{in: "a: ${}\n", problem: `"${}" is not a variable`},
		{in: "a: ${1}\n", problem: `"${1}" is not a variable`},
		{in: "a: ${NONE:-${TAG}}\n", problem: `"${NONE:-${TAG}" is not a variable`},
		{in: "a: ${TAG\n", problem: `"${TAG" is not a variable`},
		{in: "a: ${BAD}\n", problem: "variable BAD is not UTF-8 text"},
		{in: "a: \"" + strings.Repeat("${BIG}", 12) + "\"\n", problem: "f:1: a: variables expand this file to more than 10 MiB"},
	} {
		docs, problems := SplitWith("f", []byte(c.in), someVariables)
		switch {
		case c.problem != "":
			if !strings.Contains(problems.Error(), c.problem) {
				t.Errorf("%q: problems %v, want %s", c.in[:min(len(c.in), 40)], problems, c.problem)
			}
		case len(docs) != 1 || len(problems) > 0:
			t.Errorf("%q: %d documents, problems %v", c.in, len(docs), problems)
		default:
			if diff := cmp.Diff(c.want, string(docs[0].JSON())); diff != "" {
				t.Errorf("%q: %s", c.in, diff)
			}
		}
	}
	docs, problems := Split("f", []byte("a: ${TAG} ${x%y} $${b}\n"))
	if len(problems) > 0 || docs[0].Text("a") != "${TAG} ${x%y} $${b}" {
		t.Errorf("without variables: %v %v", docs, problems)
	}
}

// TestSubstituteTypes: a value has the type of its field, quoted or not.
func TestSubstituteTypes(t *testing.T) {
	t.Parallel()
	const in = `
metadata: {name: "${TAG}", labels: {num: "${N}"}}
spec:
  hostNetwork: ${ON}
  priority: "${N}"
  containers:
  - name: c
    env:
    - {name: PORT, value: "${PORT}"}
    - name: UNQUOTED
      value: ${ON}
    ports: [{containerPort: "${PORT}"}]
    readinessProbe: {httpGet: {port: "${PORT}"}}
    livenessProbe: {httpGet: {port: "${_a1}"}}
    resources: {limits: {cpu: "${N}"}}
`
	docs, problems := SplitWith("f", []byte(in), someVariables)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var pod v1.Pod
	if problems := Into(docs[0], &pod); len(problems) > 0 {
		t.Fatal(problems)
	}
	c := pod.Spec.Containers[0]
	got := []any{
		pod.Name, pod.Labels["num"], pod.Spec.HostNetwork, *pod.Spec.Priority, c.Env[0].Value, c.Env[1].Value, c.Ports[0].ContainerPort,
		c.ReadinessProbe.HTTPGet.Port.IntValue(), c.LivenessProbe.HTTPGet.Port.String(), c.Resources.Limits.Cpu().String(),
	}
	want := []any{"1.27", "3", true, int32(3), "8080", "true", int32(8080), 8080, "under", "3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	docs, _ = SplitWith("f", []byte("spec:\n  priority: ${TAG}\n  hostNetwork: ${EMPTY}\n"), someVariables)
	text := Into(docs[0], &v1.Pod{}).Error()
	if !strings.Contains(text, "f:2: spec.priority: 1.27 is not a whole number") || !strings.Contains(text, `f:3: spec.hostNetwork: got a string (""), want true or false`) {
		t.Error(text)
	}
}

// FuzzSubstitute: no value changes the structure of a document, and no document makes trouble.
func FuzzSubstitute(f *testing.F) {
	f.Add("a: [\"${X}\", b]\nc: {d: \"$${X} ${X:-y}\"}\n", "\"]\n---\nz: 1")
	f.Add("a: |\n  ${X}\n  ${Y-}\n", "- b")
	f.Add("${X}: ${\n", "${X}")
	f.Add(`{"a": "${X}"}`, `", "b": "`)
	f.Fuzz(func(t *testing.T, in, value string) {
		if strings.Contains(in, "items") {
			return // a kind may be a variable, and that of a List is replaced by its items
		}
		plain, _ := Split("f", []byte(in))
		docs, problems := SplitWith("f", []byte(in), func(string) (string, bool) { return value, true })
		if len(problems) > 0 {
			return
		}
		if len(docs) != len(plain) {
			t.Fatalf("%d documents, want %d", len(docs), len(plain))
		}
		for i := range docs {
			if got, want := shape(docs[i].root), shape(plain[i].root); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			_ = Into(docs[i], &v1.Pod{})
		}
	})
}

// shape is a value without its texts.
func shape(n *node) string {
	var b strings.Builder
	b.WriteByte("-0btslm"[n.kind])
	for _, e := range n.entries {
		b.WriteString("(" + e.name + shape(e.value) + ")")
	}
	return b.String()
}
