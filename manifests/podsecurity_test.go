package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPodSecurity: pods are refused with file, line and the words of the API server, also
// those of a workload, and a Namespace of the input counts wherever it is.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	namespace := func(labels string) string {
		return "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {" + labels + "}}\n"
	}
	for _, tt := range []struct {
		name, level, in string
		want            []string
		warnings        []string
	}{
		{"off", "", pod("p", "  hostPID: true\n"), nil, nil},
		{"baseline", "baseline", pod("p", "  hostPID: true\n"), []string{
			`f:4: spec: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)`,
		}, nil},
		{"restricted", "restricted:v1.25", pod("p", "  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}\n") + "    securityContext: {capabilities: {drop: [ALL]}}\n", []string{
			`f:4: spec: violates PodSecurity "restricted:v1.25": allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)`,
		}, nil},
		{
			"workload", "baseline", workloadDoc("batch/v1", "Job", "  completions: 2\n  parallelism: 2\n  template: {spec: {restartPolicy: Never, hostIPC: true, containers: [{name: c, image: i}]}}\n"),
			[]string{`f:7: spec.template.spec: violates PodSecurity "baseline:latest": host namespaces (hostIPC=true)`},
			nil,
		},
		{"namespace after its pod", "", pod("p", "  hostPID: true\n") + namespace("pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/enforce-version: v1.0"), []string{
			`f:4: spec: violates PodSecurity "restricted:v1.0": host namespaces (hostPID=true), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)`,
		}, nil},
		{"namespace warns", "", pod("p", "  hostPID: true\n") + namespace("pod-security.kubernetes.io/warn: baseline"), nil, []string{
			`f:4: spec: would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)`,
		}},
		{"namespace with a wrong label", "", pod("p") + namespace("pod-security.kubernetes.io/warn: strict"), []string{
			`f:11: metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: "strict": must be one of privileged, baseline, restricted`,
		}, nil},
		{"invalid namespace", "", pod("p") + strings.Replace(namespace("Pod security: baseline"), "name: default", "name: Default", 1), []string{
			`f:11: metadata.labels: Invalid value: "Pod security": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			`f:11: metadata.name: Invalid value: "Default": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
		}, []string{"f:10: kind: Namespace is not supported and was ignored"}},
		{"namespace without labels", "", pod("p") + namespace("") + namespace("team: x"), nil, []string{"f:10: kind: Namespace is not supported and was ignored"}},
		{"no such level", "strict", pod("p"), []string{`pod security "strict": must be one of privileged, baseline, restricted`}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := ReadPaths(t.Context(), []string{"-"}, Options{PodSecurity: tt.level, Stdin: strings.NewReader(tt.in)})
			text := func(err error) []string {
				if err == nil {
					return nil
				}
				return strings.Split(strings.ReplaceAll(err.Error(), "<stdin>", "f"), "\n")
			}
			if d := cmp.Diff(tt.want, text(err)); d != "" {
				t.Error("errors:", d)
			}
			if d := cmp.Diff(tt.warnings, text(set.Warnings.Err())); d != "" {
				t.Error("warnings:", d)
			}
		})
	}
}
