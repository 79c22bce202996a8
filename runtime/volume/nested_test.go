package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// podOf returns a pod with a container for each text of mounts: "NAME=PATH[:SUBPATH] ...".
func mountsPod(containers ...string) *v1.Pod {
	pod := &v1.Pod{}
	for _, text := range containers {
		c := v1.Container{}
		for _, mount := range strings.Fields(text) {
			name, path, _ := strings.Cut(mount, "=")
			path, sub, _ := strings.Cut(path, ":")
			m := v1.VolumeMount{Name: name, MountPath: path, SubPath: sub}
			if strings.HasPrefix(sub, "$") {
				m.SubPath, m.SubPathExpr = "", sub
			}
			c.VolumeMounts = append(c.VolumeMounts, m)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

func TestNestedMountpoints(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mounts []string
		want   []string
	}{
		"none":              {[]string{"v=/a w=/b"}, nil},
		"one inside":        {[]string{"v=/a w=/a/b"}, []string{"b"}},
		"the other way":     {[]string{"w=/a v=/a/b"}, nil},
		"a longer name":     {[]string{"v=/a w=/ab"}, nil},
		"deep":              {[]string{"v=/a w=/a/b/c"}, []string{"b/c"}},
		"inside one inside": {[]string{"v=/a w=/a/b x=/a/b/c y=/a/bc"}, []string{"b", "bc"}},
		"itself":            {[]string{"v=/a v=/a/b"}, []string{"b"}},
		"at two places":     {[]string{"v=/a v=/c w=/a/b w=/c/d"}, []string{"b", "d"}},
		"of two containers": {[]string{"v=/a w=/a/b", "v=/a w=/a/b x=/a/c"}, []string{"b", "c"}},
		"not of another":    {[]string{"v=/a", "w=/a/b"}, nil},
		"unclean paths":     {[]string{"v=a/ w=/x/../a//b/"}, []string{"b"}},
		"at the root":       {[]string{"v=/ w=/b"}, []string{"b"}},
		"subPath":           {[]string{"v=/a:sub w=/a/b"}, []string{"sub/b"}},
		"subPathExpr":       {[]string{"v=/a:$(X) w=/a/b"}, nil},
		"out of the volume": {[]string{"v=/a:../.. w=/a/b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, nestedMountpoints(mountsPod(tt.mounts...), "v")); diff != "" {
				t.Errorf("points (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMakeNestedMountpoints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod := mountsPod("v=/a w=/a/b/c w=/a/file")
	for range 2 {
		if err := makeNestedMountpoints(dir, pod, "v"); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "b/c")); err != nil || !info.IsDir() {
		t.Errorf("b/c: %v, want a directory", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "file")); err != nil || info.IsDir() {
		t.Errorf("file: %v, want it as it was", err)
	}
	if err := makeNestedMountpoints(dir, mountsPod("v=/a w=/a/file/under"), "v"); err == nil {
		t.Error("a directory below a file was made")
	}
}
