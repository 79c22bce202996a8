package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestNarrow: what is wanted brings along what it depends on, and the rest of its Job; workloads without pods go.
func TestNarrow(t *testing.T) {
	t.Parallel()
	in := dependent("a", "b") + dependent("b", "j:completed") + plainJob("{annotations: {runonce/depends-on: c}}") + pod("c") + "---\n" + dependent("d", "svc:running") +
		serviceDoc("svc", "  selector: {app: web}\n  ports: [{port: 80}]\n") +
		strings.Replace(workloadDoc("apps/v1", "Deployment", "  replicas: 1\n  selector: {matchLabels: {app: web}}\n  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}\n"), ", namespace: ns", "", 1)
	for _, c := range []struct{ wanted, pods, added, workloads string }{
		{"c", "c", "", ""},
		{"j-1", "j-0 j-1 c", "j-0 c", "j"},
		{"a c", "a b j-0 j-1 c", "b j-0 j-1", "j"},
		{"d", "d w-0", "w-0", "w"},
		{"w-0", "w-0", "", "w"},
	} {
		set, err := read(t.Context(), Options{}, func(visit func(inputFile)) { inputFS(dir("f", in), visit) })
		if err != nil {
			t.Fatal(err)
		}
		var wanted []*v1.Pod
		for _, pod := range set.Pods {
			if strings.Contains(" "+c.wanted+" ", " "+pod.Name+" ") {
				wanted = append(wanted, pod)
			}
		}
		names := func(pods []*v1.Pod) string {
			var all []string
			for _, pod := range pods {
				all = append(all, pod.Name)
			}
			return strings.Join(all, " ")
		}
		added := set.Narrow(wanted)
		var workloads []string
		for _, o := range set.Definitions() {
			workloads = append(workloads, o.GetName())
		}
		got := []string{names(set.Pods), names(added), strings.Join(workloads, " ")}
		if diff := cmp.Diff([]string{c.pods, c.added, c.workloads}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.wanted, diff)
		}
		if len(set.Services()) != 1 {
			t.Errorf("%s: %d Services", c.wanted, len(set.Services()))
		}
	}
}
