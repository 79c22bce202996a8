package manifests

import (
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/podspec"
)

// TestServiceOfInvalidPods: that a document has errors is not also a problem of the Services that select its pods.
func TestServiceOfInvalidPods(t *testing.T) {
	t.Parallel()
	broken := strings.Replace(workloadDoc("apps/v1", "Deployment", "  replicas: x\n  selector: {matchLabels: {app: x}}\n  TEMPLATE\n"), ", namespace: ns", "", 1)
	set, err := Read(dir("f", serviceDoc("s", "  selector: {app: x}\n  ports: [{port: 80, targetPort: http}]\n")+dependent("a", "s")+broken))
	if got := lines(err); len(got) != 1 || !strings.Contains(got[0], "spec.replicas: ") {
		t.Errorf("errors %q", got)
	}
	if len(set.Warnings) > 0 {
		t.Errorf("warnings %v", set.Warnings)
	}
	for _, on := range set.Dependencies() {
		if len(on[0].Pods) != 1 || on[0].Pods[0].Name != "w" {
			t.Errorf("depends on %v", on[0].Pods)
		}
	}
}

// TestServicesAreNoContent: a pod is the same with and without the Services that select it.
func TestServicesAreNoContent(t *testing.T) {
	t.Parallel()
	plain := mustRead(t, "f", labelled("p", "app: web", ""))
	served := mustRead(t, "f", serviceDoc("web", "  selector: {app: web}\n  ports: [{port: 80}]\n")+labelled("p", "app: web", "")+dependent("a", "web"))
	if plain.Pods[0].UID != served.Pods[0].UID {
		t.Error("the pod has another UID")
	}
}

// TestServicesOfACluster: an API server checks them, and its endpoints may come later.
func TestServicesOfACluster(t *testing.T) {
	t.Parallel()
	in := serviceDoc("a", "  type: LoadBalancer\n  loadBalancerIP: x\n  clusterIP: 10.0.0.1\n  selector: {app: none}\n") + serviceDoc("b", "  clusterIP: 10.0.0.1\n") +
		serviceDoc("c", "  selector: {app: web}\n") + "apiVersion: v1\nkind: Endpoints\nmetadata: {name: b}\n---\n" + labelled("p", "app: web", "") + dependent("q", "c")
	set, err := ReadPaths(t.Context(), []string{"-"}, Options{Stdin: strings.NewReader(in), Cluster: true})
	if err != nil || len(set.Services()) != 3 || len(set.Objects()) != 3 || set.Services()[0].Spec.SessionAffinity != "" {
		t.Errorf("%v, Services %v", err, set.Services())
	}
	if w := lines(set.Warnings.Err()); len(w) != 1 || !strings.Contains(w[0], "Endpoints is not supported and was ignored") {
		t.Errorf("warnings %q", w)
	}
	for _, on := range set.Dependencies() {
		if len(on[0].Pods) != 1 || on[0].Pods[0].Name != "p" {
			t.Errorf("depends on %v", on[0].Pods)
		}
	}
	if got := set.Pods[0].Annotations[podspec.AnnotationGroups]; got != "c" {
		t.Errorf("groups %q", got)
	}
}
