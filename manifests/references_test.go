package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	yes := true
	name := func(n string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: n} }
	items := []v1.KeyToPath{{Key: "k", Path: "p"}}
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: name("a")}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: name("b"), Optional: &yes}},
		}}},
		Containers: []v1.Container{{Env: []v1.EnvVar{
			{Name: "X", Value: "v"},
			{Name: "Y", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: name("c"), Key: "k"}}},
			{Name: "Z", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: name("d"), Key: "k"}}},
		}}},
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: name("e"), Items: items}}},
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "f"}}},
			{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "g"}}},
			{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: name("h")}},
				{Secret: &v1.SecretProjection{LocalObjectReference: name("i"), Optional: &yes}},
			}}}},
		},
	}}
	want := []reference{
		{"spec.initContainers[0].envFrom[0].configMapRef.name", kindConfigMap, "a", "", false},
		{"spec.initContainers[0].envFrom[1].secretRef.name", kindSecret, "b", "", true},
		{"spec.containers[0].env[1].valueFrom.configMapKeyRef", kindConfigMap, "c", "k", false},
		{"spec.containers[0].env[2].valueFrom.secretKeyRef", kindSecret, "d", "k", false},
		{"spec.volumes[0].configMap", kindConfigMap, "e", "", false},
		{"spec.volumes[0].configMap.items[0].key", kindConfigMap, "e", "k", false},
		{"spec.volumes[1].secret", kindSecret, "f", "", false},
		{"spec.volumes[2].persistentVolumeClaim.claimName", kindClaim, "g", "", false},
		{"spec.volumes[3].projected.sources[0].configMap", kindConfigMap, "h", "", false},
		{"spec.volumes[3].projected.sources[1].secret", kindSecret, "i", "", true},
	}
	if d := cmp.Diff(want, references(pod), cmp.AllowUnexported(reference{})); d != "" {
		t.Error(d)
	}
}
