package validation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// TestLengths: names and paths that the kernel does not take are errors, those of the greatest
// length are none.
func TestLengths(t *testing.T) {
	t.Parallel()
	name, path := strings.Repeat("n", 255), strings.Repeat("/12345", 682)+"/12"
	for _, tt := range []struct {
		name   string
		change func(p *v1.Pod, c *v1.Container, more string)
		want   string // of one byte more
	}{
		{"names", func(p *v1.Pod, _ *v1.Container, more string) {
			p.Namespace, p.Name = "ns", strings.Repeat("a", 215)+more
		}, "metadata.name: the pod's name has 216 bytes and its namespace 2: together they may have 217, so that the directory of its logs, " +
			"NAMESPACE_NAME_UID, can have a name (shorten it to 215 bytes)"},
		{"path", func(_ *v1.Pod, c *v1.Container, more string) { c.WorkingDir = path + more }, "spec.containers[0].workingDir: has 4096 bytes, more than the 4095 of a path"},
		{"message", func(_ *v1.Pod, c *v1.Container, more string) { c.TerminationMessagePath = "/" + name + more }, "spec.containers[0].terminationMessagePath"},
		{"mount", func(_ *v1.Pod, c *v1.Container, more string) {
			c.VolumeMounts = []v1.VolumeMount{{MountPath: "/a"}, {MountPath: "/" + name + more + "/b"}}
		}, "spec.containers[0].volumeMounts[1].mountPath"},
		{"subPath", func(_ *v1.Pod, c *v1.Container, more string) {
			c.VolumeMounts = []v1.VolumeMount{{MountPath: "/a", SubPath: "a/" + name + more}}
		}, "spec.containers[0].volumeMounts[0].subPath"},
		{"init container", func(p *v1.Pod, c *v1.Container, more string) {
			p.Spec.InitContainers = []v1.Container{{WorkingDir: "/" + name + more, Image: c.Image}}
		}, "spec.initContainers[0].workingDir"},
		{"hostPath", volume(func(path string) v1.VolumeSource {
			return v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/" + path}}
		}), "spec.volumes[0].hostPath.path"},
		{"configMap", volume(func(path string) v1.VolumeSource {
			return v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{Items: []v1.KeyToPath{{Path: path}}}}
		}), "spec.volumes[0].configMap.items[0].path"},
		{"secret", volume(func(path string) v1.VolumeSource {
			return v1.VolumeSource{Secret: &v1.SecretVolumeSource{Items: []v1.KeyToPath{{Path: path}}}}
		}), "spec.volumes[0].secret.items[0].path"},
		{"downwardAPI", volume(func(path string) v1.VolumeSource {
			return v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{Path: path}}}}
		}), "spec.volumes[0].downwardAPI.items[0].path"},
		{"token", volume(func(path string) v1.VolumeSource {
			return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: path}},
			}}}
		}), "spec.volumes[0].projected.sources[0].serviceAccountToken.path"},
	} {
		for more, want := range map[string]string{"": "", "1": tt.want} {
			p := pod()
			tt.change(p, &p.Spec.Containers[0], more)
			got := decode.Diagnostics(append(checkNames(decode.Document{}, p), findProblems(decode.Document{}, p, "")...)).Error()
			if !strings.Contains(want, ": ") && want != "" {
				want += ": has a file name of 256 bytes, more than the 255 of a file name: nnnnnnnnnnnnnnnnnnnn..."
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s%s: %s", tt.name, more, d)
			}
		}
	}
}

// volume returns a change to a pod with a volume that has a long path.
func volume(with func(path string) v1.VolumeSource) func(*v1.Pod, *v1.Container, string) {
	return func(p *v1.Pod, _ *v1.Container, more string) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: with(strings.Repeat("n", 255) + more)}}
	}
}
