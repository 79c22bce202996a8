package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

func TestMounts(t *testing.T) {
	t.Parallel()
	m, _ := testManager(t)
	host := t.TempDir()
	pod := testPod(
		volume("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(host, "made")}}),
		volume("work", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		volume("conf", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}),
	)
	if err := m.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	slave, shared := v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional
	possible := v1.RecursiveReadOnlyIfPossible
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{
		{Name: "conf", MountPath: "/data/etc/conf"},
		{Name: "work", MountPath: "/data"},
		{Name: "host", MountPath: "/host", ReadOnly: true, MountPropagation: &slave},
		{Name: "host", MountPath: "/shared", MountPropagation: &shared},
		{Name: "work", MountPath: "ro", ReadOnly: true, RecursiveReadOnly: &possible},
	}}
	bind := func(target, source string, options ...string) specs.Mount {
		return specs.Mount{Destination: target, Type: "bind", Source: source, Options: append([]string{"rbind"}, options...)}
	}
	work := m.path(pod, &pod.Spec.Volumes[1])
	want := []specs.Mount{
		bind("/data/etc/conf", m.path(pod, &pod.Spec.Volumes[2]), "rprivate", "ro"),
		bind("/data", work, "rprivate", "rw"),
		bind("/host", filepath.Join(host, "made"), "rslave", "ro"),
		bind("/shared", filepath.Join(host, "made"), "rshared", "rw"),
		bind("/ro", work, "rprivate", "ro"),
		bind("/dev/shm", m.dir(pod, "shm"), "rprivate", "rw"),
	}
	got, err := m.Mounts(pod, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(filepath.Join(host, "made")); err != nil || !info.IsDir() {
		t.Errorf("an unchecked hostPath that does not exist is not created: %v", err)
	}
	m.RecursiveReadOnly = func(*v1.Pod) bool { return true }
	if got, err = m.Mounts(pod, c, nil); err != nil || got[4].Options[2] != "rro" {
		t.Errorf("recursive read-only: %v, %v", got[4], err)
	}
}

func TestMountErrors(t *testing.T) {
	t.Parallel()
	enabled, slave, shared := v1.RecursiveReadOnlyEnabled, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional
	tests := []struct {
		name  string
		mount v1.VolumeMount
		want  string
	}{
		{"no such volume", v1.VolumeMount{Name: "none"}, `cannot find volume "none" to mount into container "c"`},
		{"absolute subPath", v1.VolumeMount{Name: "work", SubPath: "/etc"}, `subPath "/etc" must not be an absolute path`},
		{"dots in subPath", v1.VolumeMount{Name: "work", SubPath: "a/../../b"}, `subPath "a/../../b" must not contain '..'`},
		{"unset variable", v1.VolumeMount{Name: "work", SubPathExpr: "$(A)/$(NOPE)"}, `missing value for "NOPE"`},
		{"empty variable", v1.VolumeMount{Name: "work", SubPathExpr: "$(EMPTY)"}, `missing value for "EMPTY"`},
		{"dots in a variable", v1.VolumeMount{Name: "work", SubPathExpr: "$(DOTS)"}, `subPath "../x" must not contain '..'`},
		{
			"recursive without read-only",
			v1.VolumeMount{Name: "work", RecursiveReadOnly: &enabled},
			`volume "work" requested recursive read-only mode, but it is not read-only`,
		},
		{
			"recursive with propagation",
			v1.VolumeMount{Name: "work", ReadOnly: true, RecursiveReadOnly: &enabled, MountPropagation: &slave},
			`volume "work" requested recursive read-only mode, but it is not compatible with propagation "HostToContainer"`,
		},
		{
			"no shared mount",
			v1.VolumeMount{Name: "work", MountPropagation: &shared},
			`path "DIR" is mounted on "DIR" but it is not a shared mount`,
		},
		{
			"no shared or slave mount",
			v1.VolumeMount{Name: "work", MountPropagation: &slave},
			`path "DIR" is mounted on "DIR" but it is not a shared or slave mount`,
		},
		{
			"recursive not supported",
			v1.VolumeMount{Name: "work", ReadOnly: true, RecursiveReadOnly: &enabled},
			`volume "work" requested recursive read-only mode, but it is not supported by the runtime`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, r := testManager(t)
			r.private = true
			pod := testPod(volume("work", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}))
			if err := m.Setup(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{tt.mount}}
			_, err := m.Mounts(pod, c, []string{"A=a", "EMPTY=", "DOTS=../x"})
			want := strings.ReplaceAll(tt.want, "DIR", m.path(pod, &pod.Spec.Volumes[0]))
			if err == nil || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}
