package manifests

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// TestEveryFieldIsClassed walks the API types, so that a field of a new Kubernetes cannot be
// ignored silently.
func TestEveryFieldIsClassed(t *testing.T) {
	t.Parallel()
	seen := map[*node]bool{}
	var walk func(typ reflect.Type, n *node, path string)
	walk = func(typ reflect.Type, n *node, path string) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || decode.DecodesItself(typ) {
			return
		}
		for f := range typ.Fields() {
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || strings.Contains(opts, "inline") {
				walk(f.Type, n, path)
				continue
			}
			sub := n.down[name]
			if sub == nil || sub.row == nil {
				t.Errorf("%s.%s (%s) has no class", path, name, f.Type)
				continue
			}
			seen[sub] = true
			switch {
			case sub.row.class == supported:
			case sub.row.class != refused && sub.row.class != ignored:
				t.Errorf("%s.%s has the class %q", path, name, sub.row.class)
			case sub.row.note == "":
				t.Errorf("%s.%s is %s without a reason", path, name, sub.row.class)
			}
			if len(sub.down) > 0 || (sub.row.class == supported && sub.row.kind == "") {
				walk(f.Type, sub, path+"."+name)
			}
		}
	}
	roots := newFieldTable().kinds
	for kind, typ := range map[string]reflect.Type{
		"": reflect.TypeFor[v1.Pod](), "Deployment": reflect.TypeFor[appsv1.Deployment](),
		"ReplicaSet": reflect.TypeFor[appsv1.ReplicaSet](), "StatefulSet": reflect.TypeFor[appsv1.StatefulSet](),
		"DaemonSet": reflect.TypeFor[appsv1.DaemonSet](), "Job": reflect.TypeFor[batchv1.Job](),
		"CronJob": reflect.TypeFor[batchv1.CronJob](), "ReplicationController": reflect.TypeFor[v1.ReplicationController](),
		"Service": reflect.TypeFor[v1.Service](),
	} {
		walk(typ, roots[kind], kind)
	}
	var unknown func(n *node, path string)
	unknown = func(n *node, path string) {
		for name, sub := range n.down {
			if !seen[sub] {
				t.Errorf("%s.%s is in the table but not in the API", path, name)
			}
			unknown(sub, path+"."+name)
		}
	}
	for kind, root := range roots {
		unknown(root, kind)
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	claims := v1.ResourceRequirements{Claims: []v1.ResourceClaim{{Name: "c"}}}
	for _, tt := range []struct {
		name string
		in   v1.Pod
		want []string
	}{
		{"nothing", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}, nil},
		{"refused", v1.Pod{Spec: v1.PodSpec{SchedulingGates: []v1.PodSchedulingGate{{Name: "g"}}}}, []string{"spec.schedulingGates"}},
		{"value without effect", v1.Pod{Spec: v1.PodSpec{AutomountServiceAccountToken: &no, DNSPolicy: v1.DNSDefault}}, nil},
		{"value refused", v1.Pod{Spec: v1.PodSpec{AutomountServiceAccountToken: &yes}}, []string{"spec.automountServiceAccountToken"}},
		{"in a list", v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{}, {Resources: claims}}}}, []string{"spec.containers[1].resources.claims"}},
		{
			"of an init container",
			v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Resources: claims}}}},
			[]string{"spec.initContainers[0].resources.claims"},
		},
		{"refused object", v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{
			Name: "v", VolumeSource: v1.VolumeSource{FC: &v1.FCVolumeSource{FSType: "s"}},
		}}}}, []string{"spec.volumes[0].fc"}},
		{"ignored", v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{ServiceAccountName: "x"}}, []string{
			"metadata.uid", "spec.serviceAccountName",
		}},
		{"empty status", v1.Pod{Status: v1.PodStatus{}}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, u := range newFieldTable().uses(&tt.in) {
				got = append(got, u.Field)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
