package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

func TestDefinition(t *testing.T) {
	t.Parallel()
	pod := func(change func(*v1.Pod)) *v1.Pod {
		p := newPod("web")
		p.Annotations = map[string]string{podspec.AnnotationPath: "/a", "own": "1"}
		p.Spec.Containers = []v1.Container{{Name: "c", Image: "x"}}
		change(p)
		return p
	}
	same := func(*v1.Pod) {}
	for _, tt := range []struct {
		name   string
		record Pod
		change func(*v1.Pod)
		// whether the record is that of the changed pod, and whether its own definition counts
		defined, own bool
		path         string // after Define
	}{
		{name: "the same", record: Pod{Started: time.Unix(1, 0)}, change: same, defined: true, own: true, path: "/a"},
		{name: "with a status", record: Pod{Started: time.Unix(1, 0)}, change: func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }, defined: true, own: true, path: "/a"},
		{
			name: "read from elsewhere", record: Pod{Started: time.Unix(1, 0)}, defined: true, own: true, path: "/a",
			change: func(p *v1.Pod) { p.Annotations[podspec.AnnotationPath] = "/b" },
		},
		{name: "no lists instead of empty ones", record: Pod{Started: time.Unix(1, 0)}, change: func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{} }, defined: true, own: true, path: "/a"},
		{name: "another image", record: Pod{Started: time.Unix(1, 0)}, change: func(p *v1.Pod) { p.Spec.Containers[0].Image = "y" }, own: true, path: "/a"},
		{name: "another label", record: Pod{Started: time.Unix(1, 0)}, change: func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, own: true, path: "/a"},
		{name: "another annotation", record: Pod{Started: time.Unix(1, 0)}, change: func(p *v1.Pod) { p.Annotations["own"] = "2" }, own: true, path: "/a"},
		{name: "another ephemeral container", record: Pod{Started: time.Unix(1, 0)}, change: addEphemeral("b"), own: true, path: "/a"},
		{name: "never started", change: func(p *v1.Pod) { p.Spec.Containers[0].Image = "y" }, defined: true, path: "/a"},
		{
			name: "damaged", record: Pod{Started: time.Unix(1, 0), Failed: &Failure{Reason: reasonDamaged}}, defined: true, path: "/a",
			change: func(p *v1.Pod) { p.Spec.Containers[0].Image = "y" },
		},
	} {
		r, other := tt.record, pod(tt.change)
		r.Pod = pod(same)
		before := r.Pod
		if got := r.DefinedBy(other); got != tt.defined {
			t.Errorf("%s: defined by it: %t", tt.name, got)
		}
		if got := r.Definition(other); (got == before) != tt.own || !tt.own && got != other {
			t.Errorf("%s: its own definition counts: %t", tt.name, got == before)
		}
		r.Define(other)
		if got := r.Pod.Annotations[podspec.AnnotationPath]; got != tt.path {
			t.Errorf("%s: then read from %q", tt.name, got)
		}
		want := before
		if !r.Started.IsZero() {
			want = other
		}
		if diff := cmp.Diff(want.Spec, r.Pod.Spec); diff != "" {
			t.Errorf("%s: then (-want +got):\n%s", tt.name, diff)
		}
		if r.Pod.Status.Phase != "" {
			t.Errorf("%s: the status is recorded", tt.name)
		}
	}
}

func addEphemeral(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name}})
	}
}

// TestDefineKeepsEphemeral: a definition without the ephemeral containers of the pod is no other one, and does not
// remove them.
func TestDefineKeepsEphemeral(t *testing.T) {
	t.Parallel()
	pod := newPod("web")
	r := Pod{Started: time.Unix(1, 0), Pod: pod.DeepCopy()}
	addEphemeral("a")(r.Pod)
	if !r.DefinedBy(pod) {
		t.Error("the pod of the manifest is another one")
	}
	addEphemeral("b")(pod)
	r.Define(pod)
	if got := r.Pod.Spec.EphemeralContainers; len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
		t.Errorf("ephemeral containers %v", got)
	}
}
