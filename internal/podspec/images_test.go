package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestImages(t *testing.T) {
	t.Parallel()
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers:      []v1.Container{{Image: "init:1"}},
		Containers:          []v1.Container{{Image: "a:1", ImagePullPolicy: v1.PullAlways}, {Image: "b:1"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Image: "debug:1"}}},
		Volumes:             []v1.Volume{{}, {VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:1"}}}},
	}}
	var got []string
	for _, i := range Images(pod) {
		got = append(got, i.Field+" "+*i.Ref+" "+string(i.Policy))
		*i.Ref = "changed"
	}
	want := []string{
		"spec.initContainers[0].image init:1 ", "spec.containers[0].image a:1 Always", "spec.containers[1].image b:1 ",
		"spec.ephemeralContainers[0].image debug:1 ",
		"spec.volumes[1].image.reference data:1 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if pod.Spec.Containers[1].Image != "changed" || pod.Spec.Volumes[1].Image.Reference != "changed" {
		t.Errorf("%+v", pod.Spec)
	}
}
