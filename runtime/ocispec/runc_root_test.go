package ocispec_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/cgroup"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/volume"
)

// runc runs the container with the machine's runc on a root file system with the host's
// programs, with its volumes and in its cgroup, and returns its output.
func runc(t *testing.T, pod *v1.Pod, image engine.Image) (string, error) {
	t.Helper()
	tree, err := cgroup.Detect(cgroup.Root)
	if err != nil {
		t.Fatal(err)
	}
	tree.Parent = "/runonce-test-spec"
	volumes := &volume.Manager{Root: t.TempDir(), Mounter: volume.HostMounts{}, RecursiveReadOnly: func(*v1.Pod) bool { return true }}
	bundle := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"proc", "sys", "dev", "etc", "usr", "tmp"} {
		must(os.MkdirAll(filepath.Join(bundle, "rootfs", dir), 0o755))
	}
	for _, link := range []string{"bin", "lib", "lib64", "sbin"} {
		must(os.Symlink("usr/"+link, filepath.Join(bundle, "rootfs", link)))
	}
	must(volumes.Setup(t.Context(), pod))
	defer func() { must(volumes.Teardown(t.Context(), pod)) }()
	path, err := tree.Ensure(t.Context(), pod)
	must(err)
	defer func() { must(tree.Remove(t.Context(), pod)) }()

	c := &pod.Spec.Containers[0]
	in := ocispec.Input{
		Context:   ocispec.Context{Pod: pod, Image: image, Sandbox: engine.Sandbox{Hostname: "box"}, Node: ocispec.Node{MemoryCapacity: 8 << 30}},
		Container: c, CgroupsPath: path + "/c",
	}
	in.Host, err = host.Detect(os.DirFS("/"), tree)
	must(err)
	in.Env, err = ocispec.Environment(in.Context, c)
	must(err)
	mounts, err := volumes.Mounts(pod, c, in.Env)
	must(err)
	in.Mounts = append(mounts, specs.Mount{Destination: "/usr", Type: "bind", Source: "/usr", Options: []string{"rbind", "ro"}})
	s, err := ocispec.Build(in)
	must(err)
	data, err := json.Marshal(s)
	must(err)
	must(os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600))
	cmd := exec.CommandContext(t.Context(), "runc", "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, "spec-test-"+string(pod.UID))
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Logf("stderr: %s", stderr.String())
		return out.String(), err
	}
	return out.String(), nil
}

func shellPod(uid, script string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: types.UID(uid)},
		Spec: v1.PodSpec{
			Volumes: []v1.Volume{{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
			Containers: []v1.Container{{
				Name: "c", Command: []string{"/bin/sh", "-ec", script},
				VolumeMounts: []v1.VolumeMount{
					{Name: "work", MountPath: "/work"}, {Name: "work", MountPath: "/ro", ReadOnly: true}, {Name: "work", MountPath: "/deep", SubPath: "a/b"},
				},
			}},
		},
	}
}

func TestRunc(t *testing.T) {
	roottest.Require(t)
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	tests := []struct {
		name   string
		user   string // the image's
		script string
		change func(pod *v1.PodSpec)
		want   []string
	}{
		{
			name: "an unprivileged user", user: "app", script: `
				id -u; id -g; echo $(id -G); pwd; grep NoNewPrivs /proc/self/status | cut -f2; grep CapBnd /proc/self/status | cut -f2
				cat /proc/self/oom_score_adj
				touch /nope 2>/dev/null || echo read-only root
				touch /ro/x 2>/dev/null || echo read-only mount
				echo shared >/work/f; cat /ro/f; echo deep >/deep/g; cat /work/a/b/g
				echo x >/dev/shm/y && cat /dev/shm/y
				cat /proc/kcore | wc -c; touch /proc/sys/kernel/hostname 2>/dev/null || echo read-only proc
				[ -w /dev/null ] && echo null; ls /dev/mem 2>/dev/null || echo no mem`,
			change: func(pod *v1.PodSpec) {
				pod.Containers[0].WorkingDir = "/work"
				pod.Containers[0].SecurityContext = &v1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}, Add: []v1.Capability{"NET_BIND_SERVICE"}},
				}
				pod.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: []int64{77}}
			},
			want: []string{
				"1000", "1001", "1001 50 77", "/work", "1", "0000000000000400", "1000", "read-only root", "read-only mount",
				"shared", "deep", "x", "0", "read-only proc", "null", "no mem",
			},
		},
		{
			name: "limits", script: `
				cd /sys/fs/cgroup
				if [ -f cgroup.controllers ]; then cat memory.max memory.oom.group cpu.max; [ $(cat cpu.weight) -lt 100 ] && echo less
				else cat memory/memory.limit_in_bytes; echo 1; echo $(cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us)
				[ $(cat cpu/cpu.shares) = 512 ] && echo less; fi`,
			change: func(pod *v1.PodSpec) {
				pod.Containers[0].Resources = v1.ResourceRequirements{Requests: limits, Limits: limits}
			},
			want: []string{"67108864", "1", "50000 100000", "less"},
		},
		{
			name: "privileged", script: `
				[ $(grep CapBnd /proc/self/status | cut -f2) = $(grep CapPrm /proc/self/status | cut -f2) ] && echo all; ls /dev/full
				touch /sys/fs/cgroup/x 2>&1 | grep -c 'Read-only' || true; mount -t tmpfs none /tmp && echo mounted`,
			change: func(pod *v1.PodSpec) {
				pod.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: new(true)}
			},
			want: []string{"all", "/dev/full", "0", "mounted"},
		},
		{
			name: "host namespaces", script: `for ns in net ipc pid uts; do readlink /proc/self/ns/$ns; done`,
			change: func(pod *v1.PodSpec) {
				pod.HostNetwork, pod.HostIPC, pod.HostPID = true, true, true
			},
			want: hostNamespaces(t, "net", "ipc", "pid", "uts"),
		},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := shellPod("runc-"+string(rune('a'+i)), tt.script)
			tt.change(&pod.Spec)
			out, err := runc(t, pod, engine.Image{
				User: tt.user, Passwd: []byte("app:x:1000:1001::/:\n"), Group: []byte("logs:x:50:app\n"),
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if diff := cmp.Diff(tt.want, strings.Split(strings.TrimSpace(out), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func hostNamespaces(t *testing.T, kinds ...string) []string {
	t.Helper()
	var list []string
	for _, k := range kinds {
		ns, err := os.Readlink("/proc/self/ns/" + k)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, ns)
	}
	return list
}

// Mounts below a read-only mount stay writable, those below a recursive one do not.
func TestRuncRecursiveReadOnly(t *testing.T) {
	roottest.Require(t)
	host := t.TempDir()
	if err := os.Mkdir(filepath.Join(host, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	machine := volume.HostMounts{}
	if err := machine.Mount("tmpfs", filepath.Join(host, "sub"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := volume.UnmountBelow(machine, host); err != nil {
			t.Error(err)
		}
	})
	pod := shellPod("runc-rro", `
		touch /ro/x 2>/dev/null || echo ro; touch /ro/sub/x && echo sub
		touch /rro/x 2>/dev/null || echo rro; touch /rro/sub/y 2>/dev/null || echo all`)
	pod.Spec.Volumes = []v1.Volume{{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: host}}}}
	enabled := v1.RecursiveReadOnlyEnabled
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "host", MountPath: "/ro", ReadOnly: true}, {Name: "host", MountPath: "/rro", ReadOnly: true, RecursiveReadOnly: &enabled},
	}
	out, err := runc(t, pod, engine.Image{})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "ro\nsub\nrro\nall\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
}
