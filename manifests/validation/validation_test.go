package validation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func rules(t *testing.T) *Rules {
	t.Helper()
	r, err := New("", v1.NamespaceDefault)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1.PodSpec{HostNetwork: true, Containers: []v1.Container{{
			Name: "c", Image: "i", Ports: []v1.ContainerPort{{ContainerPort: 80}},
		}}},
	}
}

// TestDefaultsOnce: defaulting and validating a second time changes nothing, so the pods of
// workloads, whose template has its defaults, stay the same.
func TestDefaultsOnce(t *testing.T) {
	t.Parallel()
	p := pod()
	if errs, _ := rules(t).Pod(p); len(errs) > 0 {
		t.Fatal(errs)
	}
	if p.Namespace != "default" || p.Spec.Containers[0].Ports[0].HostPort != 80 || p.Spec.SecurityContext == nil {
		t.Errorf("defaults are missing: %+v", p)
	}
	again := p.DeepCopy()
	if errs, _ := rules(t).Pod(again); len(errs) > 0 {
		t.Fatal(errs)
	}
	if d := cmp.Diff(p, again); d != "" {
		t.Error(d)
	}
}

func TestPrivilegedIsAllowed(t *testing.T) {
	t.Parallel()
	p, yes := pod(), true
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: &yes}
	if errs, _ := rules(t).Pod(p); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestJobLabels(t *testing.T) {
	t.Parallel()
	o := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u"}}
	o.Spec.Template.Spec = pod().Spec
	o.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	if errs := rules(t).Object(o); len(errs) > 0 {
		t.Fatal(errs)
	}
	want := map[string]string{
		"job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u",
	}
	if d := cmp.Diff(want, o.Spec.Template.Labels); d != "" {
		t.Error(d)
	}
}

func TestSecretTakesStringData(t *testing.T) {
	t.Parallel()
	o := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"a": "b"}}
	if errs := rules(t).Object(o); len(errs) > 0 || string(o.Data["a"]) != "b" || o.StringData != nil || o.Type != v1.SecretTypeOpaque {
		t.Errorf("%v %+v", errs, o)
	}
}
