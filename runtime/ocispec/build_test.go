package ocispec

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a value with testdata/NAME.json.
func golden(t *testing.T, name string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("%s differs from the result; if that is intended, run go test ./runtime/ocispec -update\n%s", path, diff)
	}
}

func testInput(c v1.Container) Input {
	return Input{
		Context: testContext(c), Container: &c, CgroupsPath: "/runonce/burstable/poduid-1/c1", Host: Host{MinOOMScoreAdj: -1000},
		Mounts: []specs.Mount{
			{Destination: "/var/data/deep", Type: "bind", Source: "/v/deep", Options: []string{"rbind", "rprivate", "ro"}},
			{Destination: "/etc/hosts", Type: "bind", Source: "/p/hosts", Options: []string{"rbind", "rprivate", "rw"}},
			{Destination: "/dev/shm", Type: "bind", Source: "/p/shm", Options: []string{"rbind", "rprivate", "rw"}},
			{Destination: "/data", Type: "bind", Source: "/v/data", Options: []string{"rbind", "rslave", "rw"}},
		},
	}
}

// build fills in the environment as a caller does.
func build(t *testing.T, in Input) (*specs.Spec, error) {
	t.Helper()
	var err error
	if in.Env, err = Environment(in.Context, in.Container); err != nil {
		t.Fatal(err)
	}
	return Build(in)
}

// TestPlan: what confines a container follows from the pod and from what the machine has.
func TestPlan(t *testing.T) {
	t.Parallel()
	c := v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "A", Value: "b"}}, SecurityContext: &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1"}}}
	for _, tt := range []struct {
		name                    string
		host                    Host
		profile, process, mount string
	}{
		{name: "nothing"},
		{name: "AppArmor", host: Host{AppArmor: true}, profile: DefaultAppArmor},
		{name: "SELinux", host: Host{SELinux: true}, process: "system_u:system_r:container_t:s0:c1", mount: "system_u:object_r:container_file_t:s0:c1"},
	} {
		in, err := Plan(testContext(c), tt.host, &c)
		if err != nil {
			t.Fatal(err)
		}
		if in.AppArmorProfile != tt.profile || in.ProcessLabel != tt.process || in.MountLabel != tt.mount {
			t.Errorf("%s: profile %q, label %q, of files %q", tt.name, in.AppArmorProfile, in.ProcessLabel, in.MountLabel)
		}
		if in.Container != &c || !slices.Contains(in.Env, "A=b") {
			t.Errorf("%s: container %v, variables %q", tt.name, in.Container, in.Env)
		}
	}
	c.Env[0] = v1.EnvVar{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{Key: "k"}}}
	if _, err := Plan(testContext(c), Host{}, &c); err == nil {
		t.Error("a variable of a ConfigMap that does not exist: no error")
	}
}

func TestBuildGolden(t *testing.T) {
	t.Parallel()
	quantity := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	}
	unmasked := v1.UnmaskedProcMount
	tests := []struct {
		name   string
		c      v1.Container
		change func(in *Input)
	}{
		{name: "plain", c: v1.Container{Name: "c"}},
		{
			name: "limits-v1",
			c: v1.Container{Name: "c", WorkingDir: "/srv", Resources: v1.ResourceRequirements{
				Requests: quantity("250m", "64Mi"), Limits: quantity("1", "128Mi"),
			}},
			change: func(in *Input) { in.SwapLimit, in.HugePages = true, []int64{2 << 20, 1 << 30} },
		},
		{
			name: "limits-v2",
			c: v1.Container{Name: "c", Resources: v1.ResourceRequirements{
				Requests: quantity("1", "128Mi"), Limits: quantity("1", "128Mi"),
			}},
			change: func(in *Input) { in.CgroupV2, in.SwapLimit = true, true },
		},
		{
			name: "restricted",
			c: v1.Container{Name: "c", SecurityContext: &v1.SecurityContext{
				RunAsUser: new(int64(1000)), RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}, Add: []v1.Capability{"NET_BIND_SERVICE"}},
			}},
			change: func(in *Input) {
				in.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(2000)), RunAsGroup: new(int64(3000))}
				in.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
				in.AppArmorProfile, in.CPUs = "profile", 2
			},
		},
		{
			name: "privileged",
			c: v1.Container{Name: "c", TTY: true, SecurityContext: &v1.SecurityContext{
				Privileged: new(true), Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
			}},
			change: func(in *Input) {
				in.CgroupV2, in.CgroupOptions = true, []string{"nsdelegate"}
				in.HostDevices = []specs.LinuxDevice{{Path: "/dev/null", Type: "c", Major: 1, Minor: 3}}
				in.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
			},
		},
		{
			name: "host-namespaces",
			c:    v1.Container{Name: "c", SecurityContext: &v1.SecurityContext{ProcMount: &unmasked}},
			change: func(in *Input) {
				in.Pod.Spec.HostNetwork, in.Pod.Spec.HostPID, in.Pod.Spec.HostIPC = true, true, true
				in.Sandbox = engine.Sandbox{Hostname: "node"}
			},
		},
		{
			name: "shared-processes",
			c:    v1.Container{Name: "c"},
			change: func(in *Input) {
				in.Pod.Spec.ShareProcessNamespace = new(true)
				in.Sandbox.PIDNS = "/proc/123/ns/pid"
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := testInput(tt.c)
			if tt.change != nil {
				tt.change(&in)
			}
			got, err := build(t, in)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, tt.name, got)
		})
	}
}

func TestBuildErrors(t *testing.T) {
	t.Parallel()
	in := testInput(v1.Container{Name: "c"})
	in.Pod.Spec.ShareProcessNamespace = new(true)
	_, err := build(t, in)
	wantConfigError(t, err, failure.ReasonCreateError, "shareProcessNamespace: the pod has no shared process namespace")
	in = testInput(v1.Container{Name: "c"})
	in.Pod.Spec.HostUsers = new(false)
	_, err = build(t, in)
	wantConfigError(t, err, failure.ReasonCreateError, "hostUsers: false: the pod has no user namespace")
	in = testInput(v1.Container{Name: "c", WorkingDir: "rel"})
	_, err = build(t, in)
	wantConfigError(t, err, failure.ReasonCreateError, `workingDir "rel" of container "c" is not an absolute path`)
	in = testInput(v1.Container{Name: "c"})
	in.Image.User = "unknown"
	if _, err = build(t, in); err == nil {
		t.Error("an unknown user is accepted")
	}
}

func TestOOMScoreIsClamped(t *testing.T) {
	t.Parallel()
	limits := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
	c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: limits, Limits: limits}}
	for floor, want := range map[int]int{-1000: -997, 0: 0, -500: -500, 300: 300} {
		in := testInput(c)
		in.MinOOMScoreAdj = floor
		s, err := build(t, in)
		if err != nil {
			t.Fatal(err)
		}
		if got := *s.Process.OOMScoreAdj; got != want {
			t.Errorf("with a floor of %d: %d, want %d", floor, got, want)
		}
	}
}

func TestMountOrder(t *testing.T) {
	t.Parallel()
	bind := func(dest string) specs.Mount { return specs.Mount{Destination: dest, Type: "bind"} }
	got := mergeMounts(defaultMounts(false), []specs.Mount{bind("/a/b/c"), bind("/"), bind("/dev"), bind("/a/b"), bind("/z/"), bind("/sys/fs/cgroup"), bind("/a")})
	var order []string
	for _, m := range got {
		order = append(order, m.Type+" "+m.Destination)
	}
	want := []string{"proc /proc", "sysfs /sys", "bind /", "bind /dev", "bind /z/", "bind /a", "bind /a/b", "bind /a/b/c", "bind /sys/fs/cgroup"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}

func TestRootPropagation(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{"rprivate": "", "rslave": "rslave", "rprivate rslave": "rslave", "rslave rshared": "rshared", "": ""} {
		var mounts []specs.Mount
		for _, o := range strings.Fields(options) {
			mounts = append(mounts, specs.Mount{Options: []string{"rbind", o}})
		}
		if got := rootPropagation(mounts); got != want {
			t.Errorf("%q: %q, want %q", options, got, want)
		}
	}
}

// No input may make Build panic, and Build does not change its input.
func FuzzBuild(f *testing.F) {
	f.Add("sh -c $(X)", "app:x", "PATH=/bin", "app:x:1:2::/:", "g:x:3:app", int64(-1), true)
	f.Add("", "", "=", "", "", int64(0), false)
	f.Fuzz(func(t *testing.T, arg, user, env, passwd, group string, uid int64, yes bool) {
		c := v1.Container{Name: "c", Args: []string{arg}, Env: []v1.EnvVar{{Name: "X", Value: env}}}
		c.SecurityContext = &v1.SecurityContext{Privileged: &yes, Capabilities: &v1.Capabilities{Add: []v1.Capability{v1.Capability(user)}}}
		if uid != 0 {
			c.SecurityContext.RunAsUser = &uid
		}
		in := testInput(c)
		in.Image.User, in.Image.Env, in.Image.Passwd, in.Image.Group = user, []string{env}, []byte(passwd), []byte(group)
		before := snapshot(t, in)
		var err error
		if in.Env, err = Environment(in.Context, in.Container); err != nil {
			return
		}
		s, err := Build(in)
		if after := snapshot(t, in); after != before {
			t.Errorf("the input is changed:\n%s\n%s", before, after)
		}
		if err != nil {
			return
		}
		if s.Process.User.UID > 1<<31-1 || s.Process.User.GID > 1<<31-1 {
			t.Errorf("user %+v", s.Process.User)
		}
	})
}

// snapshot is what Build must not change.
func snapshot(t *testing.T, in Input) string {
	t.Helper()
	data, err := json.Marshal(struct {
		Pod       *v1.Pod
		Container *v1.Container
		Image     engine.Image
		Mounts    []specs.Mount
	}{in.Pod, in.Container, in.Image, in.Mounts})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func BenchmarkBuild(b *testing.B) {
	in := testInput(v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "A", Value: "$(B)"}}})
	in.Image.Passwd, in.Image.Group = []byte(testPasswd), []byte(testGroup)
	for b.Loop() {
		env, err := Environment(in.Context, in.Container)
		if err != nil {
			b.Fatal(err)
		}
		in.Env = env
		if _, err := Build(in); err != nil {
			b.Fatal(err)
		}
	}
}
