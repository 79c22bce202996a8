package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/internal/podspec"
)

const heavyClass = `---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: heavy}
handler: kata
overhead: {podFixed: {cpu: 250m, memory: 64Mi}}
scheduling:
  nodeSelector: {vm: "yes"}
  tolerations:
  - {key: vm, operator: Exists}
  - {key: other, operator: Exists, effect: NoSchedule}
`

func TestRuntimeClass(t *testing.T) {
	t.Parallel()
	p := mustRead(t, "f", pod("p", "  runtimeClassName: heavy\n", "  nodeSelector: {disk: ssd}\n",
		"  overhead: {cpu: 0.25, memory: 64Mi}\n", "  tolerations: [{key: vm, operator: Equal, value: x, effect: NoExecute}]\n")+heavyClass).Pods[0]
	if got := p.Annotations[podspec.AnnotationRuntimeHandler]; got != "kata" {
		t.Errorf("handler %q", got)
	}
	want := v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	if d := cmp.Diff(want, p.Spec.Overhead); d != "" {
		t.Errorf("overhead (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"disk": "ssd", "vm": "yes"}, p.Spec.NodeSelector); d != "" {
		t.Errorf("node selector (-want +got):\n%s", d)
	}
	// The class' toleration covers the pod's own.
	tolerations := []v1.Toleration{{Key: "vm", Operator: v1.TolerationOpExists}, {Key: "other", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}
	if d := cmp.Diff(tolerations, p.Spec.Tolerations); d != "" {
		t.Errorf("tolerations (-want +got):\n%s", d)
	}
	other := mustRead(t, "f", pod("p", "  runtimeClassName: heavy\n")+strings.Replace(heavyClass, "kata", "qemu", 1)).Pods[0]
	same := mustRead(t, "f", pod("p", "  runtimeClassName: heavy\n")+heavyClass).Pods[0]
	if other.UID == same.UID {
		t.Error("another handler makes the same pod")
	}
	plain := mustRead(t, "f", strings.Replace(pod("p"), "{name: p}", "{name: p, annotations: {runonce/runtime-handler: kata}}", 1)).Pods[0]
	if got, ok := plain.Annotations[podspec.AnnotationRuntimeHandler]; ok {
		t.Errorf("a pod without a class has the handler %q", got)
	}
}

func TestRuntimeClassErrors(t *testing.T) {
	t.Parallel()
	light := "---\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: light}\nhandler: crun\n"
	for _, tt := range []struct{ name, in, want string }{
		{"none", pod("p", "  runtimeClassName: heavy\n"), `f:5: spec.runtimeClassName: pod rejected: RuntimeClass "heavy" not found (add a RuntimeClass document)`},
		{"misspelt", pod("p", "  runtimeClassName: heawy\n") + heavyClass, `f:5: spec.runtimeClassName: pod rejected: RuntimeClass "heawy" not found (did you mean heavy?)`},
		{
			"overhead of no class", pod("p", "  overhead: {cpu: 1}\n"),
			"f:5: spec.overhead: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead (leave it out, or give the RuntimeClass an overhead)",
		},
		{
			"overhead of a class without", pod("p", "  runtimeClassName: light\n", "  overhead: {cpu: 1}\n") + light,
			"f:6: spec.overhead: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead (leave it out, or give the RuntimeClass an overhead)",
		},
		{
			"another overhead", pod("p", "  runtimeClassName: heavy\n", "  overhead: {cpu: 1}\n") + heavyClass,
			"f:6: spec.overhead: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead (leave it out)",
		},
		{
			"another selector", pod("p", "  runtimeClassName: heavy\n", "  nodeSelector: {vm: \"no\"}\n") + heavyClass,
			"f:6: spec.nodeSelector: conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := Read(dir("f", tt.in)); err == nil || err.Error() != tt.want {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}
