package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTypesAndRules: wrong types and unknown fields do not hide what the rules of Kubernetes find
// in the rest, and nothing is reported that only follows from them.
func TestTypesAndRules(t *testing.T) {
	t.Parallel()
	const spec = "spec:\n  containers:\n  - name: c\n    image: i\n"
	for _, tt := range []struct {
		name string
		in   string
		want []string
	}{
		{"name", "apiVersion: v1\nkind: Pod\nmetadata: {}\n" + spec + "    command: sleep 1\n", []string{
			"f:3: metadata.name: Required value: name or generateName is required",
			`f:8: spec.containers[0].command: got a string ("sleep 1"), want a list (write a list: ["sh", "-c", "sleep 1"])`,
		}},
		{"same container", pod("p") + "    stdin: 5\n    imagePullPolicy: Sometimes\n", []string{
			"f:8: spec.containers[0].stdin: got a number (5), want true or false",
			`f:9: spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`,
		}},
		{"missing object", pod("p", "  hostPID: 5\n  volumes: [{name: v, secret: {secretName: s}}]\n"), []string{
			"f:5: spec.hostPID: got a number (5), want true or false",
			`f:6: spec.volumes[0].secret: Secret "s" is not in the input (add it to the input, or mark the reference optional)`,
		}},
		{"second of a name", pod("p") + "---\n" + pod("p", "  hostPID: 5\n"), []string{
			`f:11: metadata.name: Pod "default/p" is already defined at f:1 (rename or remove one)`,
			"f:13: spec.hostPID: got a number (5), want true or false",
		}},
		{"workload", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: two\n  template: {spec: {containers: [{name: C, image: i}]}}\n", []string{
			"f:4: spec.selector: Required value",
			`f:5: spec.replicas: got a string ("two"), want a whole number`,
			`f:6: spec.template.metadata.labels: Invalid value: null: ` + "`selector` does not match template `labels`",
			`f:6: spec.template.spec.containers[0].name: Invalid value: "C": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
		}},
		{"ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: M}\ndata: {a: 1}\n", []string{
			`f:3: metadata.name: Invalid value: "M": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`f:4: data[a]: got a number (1), want a string (quote it: "1")`,
		}},
		// What follows from an error is not reported.
		{"misspelled", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    imagee: i\n", []string{
			"f:7: spec.containers[0].imagee: unknown field (did you mean image?)",
		}},
		{"misplaced", "apiVersion: v1\nkind: Pod\nname: p\nmetadata: {}\n" + spec, []string{
			"f:3: name: unknown field (it belongs in metadata)",
		}},
		{"other case", "apiVersion: v1\nkind: Pod\nMetadata: {name: p}\n" + spec, []string{
			"f:3: Metadata: unknown field (did you mean metadata?)",
		}},
		{"quantity beside an unknown one", pod("p") + "    resources: {limits: {cpu: 1,5, memory: 100MB}}\n", []string{
			`f:8: spec.containers[0].resources.limits[memory]: "100MB" is not a valid quantity (write 100Mi or 100M)`,
		}},
		{"variable", pod("p") + "    stdin: 5\n  - name: d\n    image: $IMAGE\n", []string{
			"f:8: spec.containers[0].stdin: got a number (5), want true or false",
			`f:10: spec.containers[1].image: Invalid value: "$IMAGE": invalid reference format: repository name (library/$IMAGE) must be lowercase (looks like an unrendered template: $IMAGE)`,
		}},
		{"too deep", pod("p") + "    env:\n    - name: A\n      restartPolicy: Never\n      imagePullPolicy: Never\n", []string{
			"f:10: spec.containers[0].env[0].restartPolicy: unknown field (it belongs in an outer object: check the indentation)",
			"f:11: spec.containers[0].env[0].imagePullPolicy: unknown field (it belongs in an outer object: check the indentation)",
		}},
		{"volume", pod("p", "  volumes:\n  - name: 5\n    emptyDir: {}\n") + "    volumeMounts: [{name: five, mountPath: /v}]\n", []string{
			`f:6: spec.volumes[0].name: got a number (5), want a string (quote it: "5")`,
		}},
		{"item of a list", pod("p") + "  - text\n  - name: d\n", []string{
			`f:8: spec.containers[1]: got a string ("text"), want an object`,
			"f:9: spec.containers[2].image: Required value",
		}},
		{"namespace", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: 5}\n", []string{
			`f:7: metadata.namespace: got a number (5), want a string (quote it: "5")`,
		}},
		{"Job", workloadDoc("batch/v1", "Job", "  completionMode: 5\n  backoffLimitPerIndex: 1\n  completions: 2\n  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n"), []string{
			`f:5: spec.completionMode: got a number (5), want a string (quote it: "5")`,
		}},
		{"side effect of a default", workloadDoc("batch/v1", "Job", "  template: {spec: {restartPolicy: 5, containers: [{name: c, image: i}]}}\n"), []string{
			`f:5: spec.template.spec.restartPolicy: got a number (5), want a string (quote it: "5")`,
		}},
		{"init container", pod("p", "  initContainers:\n  - name: i\n    image: i\n    restartPolicy: [Always]\n    readinessProbe: {exec: {command: [a]}}\n"), []string{
			"f:8: spec.initContainers[0].restartPolicy: got a list, want a string",
		}},
		{"ReplicationController", "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: r}\nspec:\n  replicas: x\n  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}\n", []string{
			`f:5: spec.replicas: got a string ("x"), want a whole number`,
			"f:6: spec.template.spec.containers[0].image: Required value",
		}},
		{"quantity", pod("p") + "    resources: {limits: {memory: 1e999999999}, requests: {memory: 1Gi}}\n    imagePullPolicy: Never\n", []string{
			"f:8: spec.containers[0].resources.limits[memory]: quantity 1e999999999 is out of range",
		}},
		{"given twice", pod("p") + "    resources: {limits: {memory: 1Gi, memory: 1e999999999}}\n", []string{
			"f:8: spec.containers[0].resources.limits.memory: given twice; first on line 8 (keep one of the two)",
			"f:8: spec.containers[0].resources.limits[memory]: quantity 1e999999999 is out of range",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(dir("f", tt.in))
			if d := cmp.Diff(tt.want, lines(err)); d != "" {
				t.Error(d)
			}
		})
	}
}
