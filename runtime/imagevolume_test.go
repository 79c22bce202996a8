package runtime_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
)

// TestImageVolumes: an image is mounted when a container that mounts it is started, its errors
// are that container's, and Stop releases it.
func TestImageVolumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep", "sleep")
		image := func(name, ref string, policy v1.PullPolicy) v1.Volume {
			return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: ref, PullPolicy: policy}}}
		}
		pod.Spec.Volumes = []v1.Volume{
			image("here", boxImage, v1.PullIfNotPresent), image("gone", "localhost/gone:1", v1.PullNever),
			image("unused", "localhost/gone:1", v1.PullAlways), image("idle", "localhost/far:1", v1.PullIfNotPresent),
		}
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "here", MountPath: "/here"}}
		pod.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "here", MountPath: "/here"}, {Name: "gone", MountPath: "/gone"}}
		err := p.Sync(t.Context(), pod)
		var sync *runtime.SyncError
		if !errors.As(err, &sync) || !strings.HasPrefix(err.Error(), `container "c1": ErrImageNeverPull: `) || !sync.Permanent() || len(sync.Errors) != 1 {
			t.Errorf("a missing image: %v", err)
		}
		if d := cmp.Diff([]string{boxImage}, n.engine.Mounted()); d != "" {
			t.Error(d)
		}
		wantStates(t.Context(), t, p, pod, "c0=running", "c1=waiting ErrImageNeverPull")
		// What no container mounts is pulled, too, and an error does not matter.
		if _, err := n.engine.Image(t.Context(), "localhost/far:1"); err != nil {
			t.Errorf("an image that no container mounts: %v", err)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if left := n.engine.Mounted(); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
		n.left(t)
	})
}
