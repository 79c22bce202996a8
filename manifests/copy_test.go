package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// TestCopy: what becomes of the pods of a copy is nothing to the set, and both know where they are in the input.
func TestCopy(t *testing.T) {
	t.Parallel()
	set, err := readImages(t, Options{Places: true})
	if err != nil {
		t.Fatal(err)
	}
	own := set.Copy().Copy()
	if len(own.places) != len(set.places) {
		t.Errorf("%d places, want %d", len(own.places), len(set.places))
	}
	before := set.Pods[0].UID
	if err := own.SetImages(own.Pods[0], func(ref string) string { return ref + imageDigest }); err != nil {
		t.Fatal(err)
	}
	if set.Pods[0].UID != before || own.Pods[0].UID == before || strings.Contains(set.Pods[0].Spec.Containers[0].Image, "@") {
		t.Errorf("the pod of the set is %s with image %s, was %s", set.Pods[0].UID, set.Pods[0].Spec.Containers[0].Image, before)
	}
	fault := func(pod *v1.Pod) []Fault { return []Fault{{Object: pod, Field: "spec", Message: "absent"}} }
	want := []string{"f:4: spec: absent"}
	if d := cmp.Diff(want, lines(own.Refuse(fault(own.Pods[0])))); d != "" {
		t.Error(d)
	}
	if len(own.Pods) != 2 || len(own.Invalid) != 1 || len(set.Pods) != 3 || len(set.Invalid) != 0 {
		t.Errorf("the copy has %d pods and %d invalid documents, the set %d and %d", len(own.Pods), len(own.Invalid), len(set.Pods), len(set.Invalid))
	}
	if d := cmp.Diff(want, lines(set.Refuse(fault(set.Pods[0])))); d != "" {
		t.Error(d)
	}
}

// TestDefines: a pod of an earlier input is defined if all that it refers to is what it was, whatever has been added to the
// pod on this machine.
func TestDefines(t *testing.T) {
	t.Parallel()
	settings := func(value string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: " + value + "}\n"
	}
	const refers = "    envFrom: [{configMapRef: {name: m, optional: true}}]\n"
	keep := func(*v1.Pod) {}
	for _, tt := range []struct {
		name   string
		before string
		change func(pod *v1.Pod)
		now    string
		want   bool
	}{
		{"unchanged", pod("p") + refers + settings("a"), keep, pod("p") + refers + settings("a"), true},
		{"another pod with the same", pod("p") + refers + settings("a"), keep, pod("q") + settings("a"), true},
		{"other content", pod("p") + refers + settings("a"), keep, pod("p") + refers + settings("b"), false},
		{"removed", pod("p") + refers + settings("a"), keep, pod("p") + refers, false},
		{"refers to nothing", pod("p") + settings("a"), keep, pod("q"), true},
		{"users of its own", pod("p") + refers + settings("a"), func(p *v1.Pod) { p.Spec.HostUsers = new(false) }, pod("p") + settings("a"), true},
		{"users that the manifest wants", pod("p", "  hostUsers: false\n") + refers + settings("a"), keep, pod("p") + settings("a"), true},
		{"debugged", pod("p") + refers + settings("a"), func(p *v1.Pod) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "d"}}}
		}, pod("p") + settings("a"), true},
		{"read from elsewhere", pod("p") + refers + settings("a"), func(p *v1.Pod) { p.Annotations[podspec.AnnotationPath] = "/x" }, pod("p") + settings("a"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := mustRead(t, "f", tt.before).Pods[0]
			tt.change(p)
			given := p.DeepCopy()
			if got := mustRead(t, "f", tt.now).Defines(p); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
			if d := cmp.Diff(given, p); d != "" {
				t.Errorf("the pod has changed:\n%s", d)
			}
		})
	}
}
