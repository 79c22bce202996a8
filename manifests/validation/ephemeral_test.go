package validation_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/manifests/validation"
)

// TestEphemeral: defaults and words are the API server's, whatever else there is to say of the pod.
func TestEphemeral(t *testing.T) {
	t.Parallel()
	rules, err := validation.New("", "default")
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "main", Image: "x"}}, RestartPolicy: v1.RestartPolicyNever,
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "first", Image: "x"}}},
	}}
	for _, tt := range []struct {
		name   string
		c      v1.EphemeralContainerCommon
		target string
		policy v1.PullPolicy
		want   string // of the error
	}{
		{name: "latest", c: v1.EphemeralContainerCommon{Name: "debugger", Image: "busybox"}, policy: v1.PullAlways},
		{name: "a tag", c: v1.EphemeralContainerCommon{Name: "debugger", Image: "busybox:1"}, target: "main", policy: v1.PullIfNotPresent},
		{name: "its policy", c: v1.EphemeralContainerCommon{Name: "debugger", Image: "busybox", ImagePullPolicy: v1.PullNever}, policy: v1.PullNever},
		{
			name: "privileged", c: v1.EphemeralContainerCommon{Name: "debugger", Image: "x:1", SecurityContext: &v1.SecurityContext{Privileged: new(true)}},
			policy: v1.PullIfNotPresent,
		},
		{name: "the name of another one", c: v1.EphemeralContainerCommon{Name: "first", Image: "x"}, want: `spec.ephemeralContainers[1].name: Duplicate value: "first"`},
		{
			name: "no name", c: v1.EphemeralContainerCommon{Name: "A", Image: "x"},
			want: `Pod "web" is invalid: spec.ephemeralContainers[1].name: Invalid value: "A": a lowercase RFC 1123 label`,
		},
		{name: "no target", c: v1.EphemeralContainerCommon{Name: "debugger", Image: "x"}, target: "first", want: `spec.ephemeralContainers[1].targetContainerName: Not found: "first"`},
		{name: "a policy", c: v1.EphemeralContainerCommon{Name: "debugger", Image: "x", ImagePullPolicy: "Often"}, want: `imagePullPolicy: Unsupported value: "Often"`},
		{name: "ports", c: v1.EphemeralContainerCommon{Name: "debugger", Image: "x", Ports: []v1.ContainerPort{{ContainerPort: 1}}}, want: "cannot be set for an Ephemeral Container"},
	} {
		got, err := rules.Ephemeral(pod, v1.EphemeralContainer{EphemeralContainerCommon: tt.c, TargetContainerName: tt.target})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if err == nil && (got.ImagePullPolicy != tt.policy || got.TerminationMessagePath == "") {
			t.Errorf("%s: defaults %+v", tt.name, got)
		}
	}
	if len(pod.Spec.EphemeralContainers) != 1 || pod.ResourceVersion != "" {
		t.Error("the pod was changed")
	}
}
