package decode

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
)

func TestInto(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n"
	for _, tt := range []struct {
		name string
		in   string
		want []string
	}{
		{"valid", "  containers: [{name: c, image: i}]\n", nil},
		{"null", "  containers: null\n  restartPolicy:\n", nil},
		{"typo", "  containers: [{name: c, imge: i}]\n", []string{"f:5: spec.containers[0].imge: unknown field (did you mean image?)"}},
		{"case", "  hostnetwork: true\n", []string{"f:5: spec.hostnetwork: unknown field (did you mean hostNetwork?)"}},
		{"one level too high", "  containers: [{runAsUser: 1}]\n", []string{"f:5: spec.containers[0].runAsUser: unknown field (it belongs in securityContext)"}},
		{"one level too low", "  containers: [{hostNetwork: true}]\n", []string{
			"f:5: spec.containers[0].hostNetwork: unknown field (it belongs in an outer object: check the indentation)",
		}},
		{"text with a colon", "  containers: [{args: [a: b]}]\n", []string{
			"f:5: spec.containers[0].args[0]: got an object, want a string (quote a string that contains \": \")",
		}},
		{"invisible character", "  containers: []\n  \u00a0hostPID: true\n", []string{
			"f:6: spec.\\u00a0hostPID: unknown field (contains the invisible character U+00A0: retype the text)",
		}},
		{"far from any name", "  zzzzzz: true\n", []string{"f:5: spec.zzzzzz: unknown field"}},
		{"several", "  a1: 1\n  b2: 2\n  hostNetwork: \"true\"\n", []string{
			"f:5: spec.a1: unknown field", "f:6: spec.b2: unknown field",
			`f:7: spec.hostNetwork: got a string ("true"), want true or false (remove the quotes)`,
		}},
		{"boolean for string", "  nodeName: yes\n", []string{`f:5: spec.nodeName: got a boolean (yes), want a string (quote it: "yes", since YAML 1.1 reads yes as a boolean)`}},
		{"number for string", "  nodeName: 08.10\n", []string{`f:5: spec.nodeName: got a number (08.10), want a string (quote it: "08.10")`}},
		{"object for list", "  containers: {name: c}\n", []string{`f:5: spec.containers: got an object, want a list (begin each item with "- ")`}},
		{"list for object", "  securityContext: [1]\n", []string{`f:5: spec.securityContext: got a list, want an object (remove the "- ")`}},
		{"string for list", "  containers: [{args: x}]\n", []string{`f:5: spec.containers[0].args: got a string ("x"), want a list (write a list: ["x"])`}},
		{"map of a list", "  nodeSelector: [a]\n", []string{`f:5: spec.nodeSelector: got a list, want a map of names to values (remove the "- ")`}},
		{"map value", "  nodeSelector: {disk: true}\n", []string{`f:5: spec.nodeSelector[disk]: got a boolean (true), want a string (quote it: "true", since YAML 1.1 reads true as a boolean)`}},
		{"fraction", "  priority: 1.5\n", []string{"f:5: spec.priority: 1.5 is not a whole number"}},
		{"whole float", "  priority: 2.0\n", nil},
		{"too large", "  priority: 3000000000\n", []string{"f:5: spec.priority: 3000000000 does not fit into 32 bits"}},
		{"octal of YAML 1.2", "  volumes: [{name: v, secret: {defaultMode: 0o644}}]\n", nil},
		{"port as number or string", "  containers: [{livenessProbe: {tcpSocket: {port: web}}, readinessProbe: {tcpSocket: {port: 80}}}]\n", nil},
		{"port as list", "  containers: [{livenessProbe: {tcpSocket: {port: []}}}]\n", []string{
			"f:5: spec.containers[0].livenessProbe.tcpSocket.port: got a list, want a number or a string",
		}},
		{"template in a value", "  nodeName: {{ .Node }}\n", []string{"f:5: spec.nodeName: a map or list cannot be a key (looks like an unrendered template: {{ }})"}},
		{"template in a key", "  ${KEY}: x\n", []string{"f:5: spec.${KEY}: unknown field (looks like an unrendered template: ${ })"}},
		{"time", "status: {startTime: yesterday}\n", []string{`f:4: status.startTime: "yesterday" is not a valid time (write it like 2006-01-02T15:04:05Z)`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := head + tt.in
			if strings.HasPrefix(tt.in, "status") {
				in = strings.TrimSuffix(head, "spec:\n") + tt.in
			}
			docs, problems := Split("f", []byte(in))
			for _, d := range docs {
				problems = append(problems, Into(d, &v1.Pod{})...)
			}
			var got []string
			for _, f := range problems {
				got = append(got, f.String())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSecretData(t *testing.T) {
	t.Parallel()
	docs, _ := Split("f", []byte("data:\n  good: aGk=\n  bad: hi there\n"))
	problems := Into(docs[0], &v1.Secret{})
	if d := cmp.Diff("f:3: data[bad]: not valid base64 (put plain text under stringData)", problems.Error()); d != "" {
		t.Error(d)
	}
}

func TestQuantities(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in    string
		want  string // problem, or the quantity
		value int64
	}{
		{"100m", "", 1},
		{"1", "", 1},
		{"0.5", "", 1},
		{"1e3", "", 1000},
		{"128Mi", "", 128 << 20},
		{"1Ki", "", 1024},
		{"8Pi", "", 1 << 53},
		{"16Pi", "16Pi is more than any node has and counts as 8Pi", 1 << 53},
		{"10E", "10E is more than any node has and counts as 8Pi", 1 << 53},
		{"1e30", "1e30 is more than any node has and counts as 8Pi", 1 << 53},
		{"99999999999999999999", "99999999999999999999 is more than any node has and counts as 8Pi", 1 << 53},
		{"1e999999999", "quantity 1e999999999 is out of range", 0},
		{`"1e-9999999"`, "quantity 1e-9999999 is out of range", 0},
		{`"1E0000000000000000009999"`, "quantity 1E0000000000000000009999 is out of range", 0},
		{"1" + strings.Repeat("0", 300), "quantity 1" + strings.Repeat("0", 59) + "... is out of range", 0},
		{"128MB", `"128MB" is not a valid quantity (write 128Mi or 128M)`, 0},
		{"128mb", `"128mb" is not a valid quantity (write 128Mi or 128M)`, 0},
		{"64KiB", `"64KiB" is not a valid quantity (write 64Ki or 64k)`, 0},
		{"100B", `"100B" is not a valid quantity (leave out the B: 100)`, 0},
		{"1 Gi", `"1 Gi" is not a valid quantity (write number and unit without anything in between)`, 0},
		{"dns_memory_limit", `"dns_memory_limit" is not a valid quantity (units are m, k, M, G, T, P, E and Ki, Mi, Gi, Ti, Pi, Ei)`, 0},
		{"64K", `"64K" is not a valid quantity (kilo is k, kibi is Ki)`, 0},
		{"lots", `"lots" is not a valid quantity (units are m, k, M, G, T, P, E and Ki, Mi, Gi, Ti, Pi, Ei)`, 0},
		{"'{{ .cpu }}'", `"{{ .cpu }}" is not a valid quantity (looks like an unrendered template: {{ }})`, 0},
		{"[1]", "got a list, want a quantity such as 500m or 128Mi", 0},
	} {
		t.Run(tt.in[:min(len(tt.in), 30)], func(t *testing.T) {
			t.Parallel()
			docs, _ := Split("f", []byte("spec: {containers: [{resources: {limits: {memory: "+tt.in+"}}}]}\n"))
			var p v1.Pod
			problems := Into(docs[0], &p)
			want := tt.want
			if want != "" {
				want = "f:1: spec.containers[0].resources.limits[memory]: " + want
			}
			if d := cmp.Diff(want, problems.Error()); d != "" {
				t.Error(d)
			}
			if tt.value > 0 && p.Spec.Containers[0].Resources.Limits.Memory().Value() != tt.value {
				t.Errorf("value %s, want %d", p.Spec.Containers[0].Resources.Limits.Memory(), tt.value)
			}
		})
	}
}

// TestLargeQuantities: what is too large for Kubernetes' arithmetic is found first.
func TestLargeQuantities(t *testing.T) {
	t.Parallel()
	most := resource.NewQuantity(maxQuantity, resource.BinarySI)
	for _, digits := range []string{"1", "9", "99", "9007", "9008", "10000", "9007199", "9007200", "9007199254740993", ".9", "1.5", "000000001"} {
		for _, unit := range []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "e15", "e16", "E20", "e+99", "e-99", "e100", "e-9999999"} {
			for _, sign := range []string{"", "+", " "} {
				s := sign + digits + unit
				tooMuch := exponent(s) > maxExponent
				if !tooMuch {
					q, err := resource.ParseQuantity(strings.TrimSpace(s))
					tooMuch = err == nil && q.Cmp(*most) > 0
				}
				if tooMuch && !isLarge(s) {
					t.Errorf("%q is not looked at", s)
				}
			}
		}
	}
	for _, s := range []string{"", "0", "8080", "100m", "128Mi", "16Gi", "busybox", "-", "true"} {
		if isLarge(s) {
			t.Errorf("%q is large", s)
		}
	}
}

// TestCappedAlias: a quantity is capped where it is one, and nowhere else.
func TestCappedAlias(t *testing.T) {
	t.Parallel()
	docs, _ := Split("f", []byte("spec: {containers: [{env: [{name: A, value: &most 16Pi}], resources: {limits: {memory: *most}}}]}\n"))
	var p v1.Pod
	problems := Into(docs[0], &p)
	c := p.Spec.Containers[0]
	if len(problems) != 1 || c.Resources.Limits.Memory().Value() != maxQuantity || c.Env[0].Value != "16Pi" {
		t.Errorf("%v: memory is %s, the variable %s", problems, c.Resources.Limits.Memory(), c.Env[0].Value)
	}
}

// objects are one of each kind of type that the decoder meets.
func objects() []func() any {
	return []func() any{
		func() any { return &v1.Pod{} }, func() any { return &v1.Secret{} }, func() any { return &v1.Node{} },
		func() any { return &batchv1.CronJob{} }, func() any { return &appsv1.Deployment{} }, func() any { return &nodev1.RuntimeClass{} },
	}
}

// FuzzInto compares the decoder with Kubernetes' strict one: both accept the same, and
// decode the same objects.
func FuzzInto(f *testing.F) {
	for _, s := range []string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p, creationTimestamp: \"2020-01-01T00:00:00Z\", labels: {a: b}, managedFields: [{fieldsV1: {f: {}}}]}\n" +
			"spec: {containers: [{name: c, args: [], ports: [{containerPort: 80}], resources: {limits: {cpu: 1, memory: 1Gi}}, livenessProbe: {tcpSocket: {port: web}}}], priority: 5}\n",
		"data: {a: aGk=, b: [1, 2], c: null}\nstringData: {x: y}\nimmutable: true\n",
		"status: {capacity: {cpu: '4'}, conditions: [{lastHeartbeatTime: null}]}\nspec: {taints: []}\n",
		"spec: {schedule: '@daily', jobTemplate: {spec: {parallelism: 2, template: {}}}}\n",
		"spec: {replicas: 1, strategy: {rollingUpdate: {maxSurge: 10%, maxUnavailable: 1}}, selector: null}\n",
		"handler: x\noverhead: {podFixed: {cpu: 100m}}\n", "spec: []\n", "metadata: {name: 1}\n", "spec: {containers: {a: 1}}\n", "null\n",
		"status: {capacity: {cpu: 1.5, memory: -1, x: 1e3}}\nmetadata: {generation: 1.0}\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		docs, problems := Split("f", in)
		if len(docs) != 1 || len(problems) > 0 || docs[0].Kind("") != Map {
			return
		}
		for _, object := range objects() {
			got, want := object(), object()
			problems := Into(docs[0], got)
			if strings.Contains(problems.Error(), "out of range") || strings.Contains(problems.Error(), "counts as 8Pi") {
				continue // and Kubernetes' arithmetic might not come back
			}
			strictErrs, err := kjson.UnmarshalStrict(docs[0].JSON(), want)
			if refused := err != nil || len(strictErrs) > 0; refused != (len(problems) > 0) {
				t.Fatalf("%T: we say %v, Kubernetes says %v %v", got, problems, strictErrs, err)
			}
			if strings.Contains(problems.Error(), "json: ") || strings.Contains(problems.Error(), "unknown field \"") {
				t.Fatalf("%T: %s has been found nowhere in the document", got, problems)
			}
			if len(problems) == 0 && !reflect.DeepEqual(got, want) {
				t.Fatalf("%T: got %+v, Kubernetes makes it %+v", got, got, want)
			}
		}
	})
}

func BenchmarkInto(b *testing.B) {
	docs, _ := Split("f", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: b}}\nspec:\n  containers:\n"+
		strings.Repeat("  - {name: c, image: i, args: [a, b], env: [{name: A, value: b}], resources: {limits: {cpu: 1, memory: 1Gi}}}\n", 5)))
	b.ReportAllocs()
	for b.Loop() {
		if problems := Into(docs[0], &v1.Pod{}); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}
