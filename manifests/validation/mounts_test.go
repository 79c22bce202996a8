package validation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// TestMounts: what no OCI runtime can mount is an error; what depends on the image is none.
func TestMounts(t *testing.T) {
	t.Parallel()
	at := func(paths ...string) v1.Container {
		c := v1.Container{Image: "i"}
		for _, p := range paths {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "empty", MountPath: p})
		}
		return c
	}
	message := func(p string) v1.Container { return v1.Container{Image: "i", TerminationMessagePath: p} }
	host := at("/")
	host.VolumeMounts[0].Name = "host"
	both := at("/log", "/log/app")
	both.TerminationMessagePath = "/log"
	below := at("/log/app")
	below.TerminationMessagePath = "/log"
	for _, tt := range []struct {
		name string
		c    v1.Container
		want string
	}{
		{"usual", at("/data", "/data/sub", "/etc/app", "/dev/shm", "relative"), ""},
		{"root", at("//"), `spec.containers[0].volumeMounts[0].mountPath: volume "empty" cannot be the root of a container: it has nothing of the image, and no /proc`},
		{"root of the host", host, ""},
		{"root with its own /proc", at("/", "/proc"), ""},
		{"no path, which is an error already", at(""), ""},
		{"instead of a file of the node", at("/etc/hosts", "/etc/hosts/sub"), ""},
		{"in a file of the node", at("/data", "/etc/hosts/sub"), "spec.containers[0].volumeMounts[1].mountPath: nothing can be mounted in /etc/hosts, which is a file"},
		{"in the message", below, "spec.containers[0].volumeMounts[0].mountPath: nothing can be mounted in /log, which is a file"},
		{"instead of the message", both, ""},
		{"message", message("/tmp"), ""},
		{"message in a directory", message("/dev/log"), ""},
		{"message at the root", message("/"), "spec.containers[0].terminationMessagePath: / is a directory in every container, and the termination message a file"},
		{"message at a directory", message("/sys/fs/"), "spec.containers[0].terminationMessagePath: /sys/fs is a directory in every container, and the termination message a file"},
		{"working directory", v1.Container{Image: "i", WorkingDir: "app"}, "spec.containers[0].workingDir: must be an absolute path (begin it with /)"},
		{"absolute working directory", v1.Container{Image: "i", WorkingDir: "/app"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{tt.c}, Volumes: []v1.Volume{
				{Name: "empty", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}},
			}}}
			if d := cmp.Diff(tt.want, findProblems(decode.Document{}, p, "").Error()); d != "" {
				t.Error(d)
			}
		})
	}
}
