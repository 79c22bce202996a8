package cmd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestSetUsers(t *testing.T) {
	t.Parallel()
	const own = "has users of its own (hostUsers: false)"
	const others = "has the users of the machine: "
	limited := v1.Container{Name: "main", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1"), "vendor.example/gpu": resource.MustParse("1"),
	}}}
	for name, tt := range map[string]struct {
		spec    v1.PodSpec
		running *v1.PodSpec
		lacking string
		without bool // the flag
		want    string
		set     bool // hostUsers
	}{
		"plain":          {want: own, set: true},
		"false":          {spec: v1.PodSpec{HostUsers: new(false)}, set: true},
		"true":           {spec: v1.PodSpec{HostUsers: new(true)}, set: true},
		"the machine":    {lacking: "the kernel has no user namespaces", want: others + "the kernel has no user namespaces"},
		"host network":   {spec: v1.PodSpec{HostNetwork: true}, want: others + `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`},
		"a claim":        {spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}}}, want: others + `volume "data"`},
		"an emptyDir":    {spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}}, want: own, set: true},
		"a high user":    {spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{RunAsUser: new(int64(65536))}}, want: others + "user or group 65536"},
		"a high group":   {spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", SecurityContext: &v1.SecurityContext{RunAsGroup: new(int64(70000))}}}}, want: others + `user or group 70000 of container "main"`},
		"a device":       {spec: v1.PodSpec{Containers: []v1.Container{limited}}, want: others + `vendor.example/gpu of container "main"`},
		"running mapped": {running: &v1.PodSpec{HostUsers: new(false)}, want: own, set: true},
		"mapped before":  {running: &v1.PodSpec{HostUsers: new(false)}, without: true, want: own, set: true},
		"no wish":        {without: true},
		"running":        {running: &v1.PodSpec{}, want: others + "it was started so"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: tt.spec}
			var running []*v1.Pod
			if tt.running != nil {
				running = append(running, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: *tt.running})
			}
			want := map[types.UID]string{}
			if tt.want != "" {
				want["u"] = tt.want
			}
			if diff := cmp.Diff(want, setUsers([]*v1.Pod{pod}, running, !tt.without, tt.lacking)); diff != "" {
				t.Error(diff)
			}
			if (pod.Spec.HostUsers != nil) != tt.set {
				t.Errorf("hostUsers: %v", pod.Spec.HostUsers)
			}
		})
	}
}
