package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ptr[T any](v T) *T { return &v }

func template() v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: "ignored", UID: "ignored", Labels: map[string]string{"a": "b"}},
		Spec: v1.PodSpec{
			Volumes:    []v1.Volume{{Name: "data"}, {Name: "other"}},
			Containers: []v1.Container{{Name: "c"}},
		},
	}
}

func meta() metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: "w"} }

func TestStatefulSetClaims(t *testing.T) {
	t.Parallel()
	set := &appsv1.StatefulSet{ObjectMeta: meta(), Spec: appsv1.StatefulSetSpec{
		ServiceName: "peers", Replicas: ptr[int32](2), Template: template(), Ordinals: &appsv1.StatefulSetOrdinals{Start: 3},
		VolumeClaimTemplates: []v1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: "data"}}, {ObjectMeta: metav1.ObjectMeta{Name: "new"}},
		},
	}}
	pods, claims, err := statefulSetPods(set)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range claims {
		got = append(got, c.Namespace+"/"+c.Name)
	}
	if d := cmp.Diff([]string{"ns/data-w-3", "ns/new-w-3", "ns/data-w-4", "ns/new-w-4"}, got); d != "" {
		t.Error(d)
	}
	got = nil
	for _, v := range pods[1].Spec.Volumes {
		claim := ""
		if v.PersistentVolumeClaim != nil {
			claim = v.PersistentVolumeClaim.ClaimName
		}
		got = append(got, v.Name+"="+claim)
	}
	if d := cmp.Diff([]string{"data=data-w-4", "other=", "new=new-w-4"}, got); d != "" {
		t.Error(d)
	}
	if pods[1].Name != "w-4" || pods[1].UID != "" || pods[1].Labels["apps.kubernetes.io/pod-index"] != "4" {
		t.Errorf("pod: %+v", pods[1].ObjectMeta)
	}
	if pods[1].Spec.Hostname != "w-4" || pods[1].Spec.Subdomain != "peers" {
		t.Errorf("hostname %q, subdomain %q", pods[1].Spec.Hostname, pods[1].Spec.Subdomain)
	}
	if set.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim != nil || len(set.Spec.Template.Labels) != 1 {
		t.Error("the template was changed")
	}
}

func TestDaemonSetTolerationsAreAdded(t *testing.T) {
	t.Parallel()
	ds := &appsv1.DaemonSet{ObjectMeta: meta(), Spec: appsv1.DaemonSetSpec{Template: template()}}
	ds.Spec.Template.Spec.HostNetwork = true
	ds.Spec.Template.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}
	pods, err := daemonSetPods(ds)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tol := range pods[0].Spec.Tolerations {
		got = append(got, tol.Key)
	}
	want := []string{
		v1.TaintNodeNotReady, v1.TaintNodeUnreachable, v1.TaintNodeDiskPressure, v1.TaintNodeMemoryPressure,
		v1.TaintNodePIDPressure, v1.TaintNodeUnschedulable, v1.TaintNodeNetworkUnavailable,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestJob(t *testing.T) {
	t.Parallel()
	job := func(change func(*batchv1.JobSpec)) *batchv1.Job {
		o := &batchv1.Job{ObjectMeta: meta(), Spec: batchv1.JobSpec{Parallelism: ptr[int32](1), Template: template()}}
		change(&o.Spec)
		return o
	}
	for _, tt := range []struct {
		name     string
		change   func(*batchv1.JobSpec)
		pods     int
		deadline int64
		env      int
	}{
		{"plain", func(s *batchv1.JobSpec) { s.Completions = ptr[int32](1) }, 1, 0, 0},
		{"completions", func(s *batchv1.JobSpec) { s.Completions = ptr[int32](3) }, 3, 0, 0},
		{"workers", func(s *batchv1.JobSpec) { s.Parallelism = ptr[int32](2) }, 2, 0, 0},
		{"no parallelism", func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = ptr[int32](0), ptr[int32](3) }, 0, 0, 0},
		{"suspended", func(s *batchv1.JobSpec) { s.Suspend = ptr(true) }, 0, 0, 0},
		{"deadline", func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr[int64](9) }, 1, 9, 0},
		{"deadline of the pod", func(s *batchv1.JobSpec) {
			s.ActiveDeadlineSeconds = ptr[int64](9)
			s.Template.Spec.ActiveDeadlineSeconds = ptr[int64](4)
		}, 1, 4, 0},
		{"indexed", func(s *batchv1.JobSpec) { s.CompletionMode = ptr(batchv1.IndexedCompletion) }, 1, 0, 1},
		{"indexed with a variable of its own", func(s *batchv1.JobSpec) {
			s.CompletionMode = ptr(batchv1.IndexedCompletion)
			s.Template.Spec.Containers[0].Env = []v1.EnvVar{{Name: "JOB_COMPLETION_INDEX", Value: "x"}}
		}, 1, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pods, err := jobPods(job(tt.change))
			if err != nil || len(pods) != tt.pods {
				t.Fatalf("%d pods, %v, want %d", len(pods), err, tt.pods)
			}
			if len(pods) == 0 {
				return
			}
			spec := pods[0].Spec
			if (spec.ActiveDeadlineSeconds == nil) != (tt.deadline == 0) || (tt.deadline != 0 && *spec.ActiveDeadlineSeconds != tt.deadline) {
				t.Errorf("deadline %v, want %d", spec.ActiveDeadlineSeconds, tt.deadline)
			}
			if len(spec.Containers[0].Env) != tt.env {
				t.Errorf("env %v, want %d", spec.Containers[0].Env, tt.env)
			}
			if got := spec.Hostname == "w-0"; got != (tt.env > 0) {
				t.Errorf("hostname %q", spec.Hostname)
			}
		})
	}
}

func TestTooManyPods(t *testing.T) {
	t.Parallel()
	o := &appsv1.ReplicaSet{ObjectMeta: meta(), Spec: appsv1.ReplicaSetSpec{Template: template()}}
	if pods, err := podsOf(o, &o.Spec.Template, maxPods+1); err == nil {
		t.Errorf("%d pods", len(pods))
	}
}
