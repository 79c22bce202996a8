package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const gpus = `cdiVersion: 0.6.0
kind: vendor.com/gpu
devices:
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/gpu0}, {path: /dev/card1}]}}
- {name: "1", containerEdits: {deviceNodes: [{path: /dev/gpu1, type: c, major: 1, minor: 3}], env: [GPU=1], mounts: [{hostPath: /opt, containerPath: /gpu}]}}
- {name: GPU-4711, containerEdits: {deviceNodes: [{path: /dev/card1}, {path: /dev/gpu0}]}}
- {name: all, containerEdits: {deviceNodes: [{path: /dev/gpu0}, {path: /dev/gpu1}]}}
containerEdits: {env: [DRIVER=x]}
`

const nics = `{"cdiVersion":"0.6.0","kind":"vendor.com/nic","devices":[
{"name":"b","containerEdits":{"env":["NIC=b"]}},{"name":"a","containerEdits":{"env":["NIC=a"]}}]}`

func open(t *testing.T, files map[string]string) (*Devices, []error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, faults, err := OpenDevices([]string{filepath.Join(dir, "etc"), filepath.Join(dir, "run"), filepath.Join(dir, "none")})
	if err != nil {
		t.Fatal(err)
	}
	return r, faults
}

func TestKinds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		in     map[string]string
		want   map[string][]string
		faults string
	}{
		{"none", nil, map[string][]string{}, ""},
		{
			"one device by two names, and all",
			map[string]string{"etc/gpu.yaml": gpus},
			map[string][]string{"vendor.com/gpu": {"vendor.com/gpu=0", "vendor.com/gpu=1"}},
			"",
		},
		{"no device nodes", map[string]string{"run/nic.json": nics}, map[string][]string{"vendor.com/nic": {"vendor.com/nic=a", "vendor.com/nic=b"}}, ""},
		{
			"a later directory wins",
			map[string]string{
				"etc/a.yaml": gpus,
				"run/a.yaml": strings.ReplaceAll(gpus, "{path: /dev/gpu1, type: c, major: 1, minor: 3}", "{path: /dev/gpu0}, {path: /dev/card1}"),
			},
			map[string][]string{"vendor.com/gpu": {"vendor.com/gpu=0"}},
			"",
		},
		{"another file", map[string]string{"etc/README": "x", "etc/y.yaml.bak": "{"}, map[string][]string{}, ""},
		{
			"one that is broken is left out",
			map[string]string{"etc/broken.yaml": "{", "etc/nic.json": nics},
			map[string][]string{"vendor.com/nic": {"vendor.com/nic=a", "vendor.com/nic=b"}},
			"broken.yaml",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, faults := open(t, tt.in)
			if diff := cmp.Diff(tt.want, r.Kinds()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (tt.faults == "") != (len(faults) == 0) || len(faults) > 0 && !strings.Contains(faults[0].Error(), tt.faults) {
				t.Errorf("faults %v, want one of %q", faults, tt.faults)
			}
		})
	}
	var none *Devices
	if got := none.Kinds(); len(got) > 0 {
		t.Errorf("nil has %v", got)
	}
}

func TestInject(t *testing.T) {
	t.Parallel()
	r, _ := open(t, map[string]string{"etc/gpu.yaml": gpus})
	spec := &specs.Spec{Process: &specs.Process{Env: []string{"A=b"}}, Linux: &specs.Linux{}}
	if err := r.Inject(spec, []string{"vendor.com/gpu=1"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A=b", "DRIVER=x", "GPU=1"}, spec.Process.Env); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	if len(spec.Linux.Devices) != 1 || spec.Linux.Devices[0].Path != "/dev/gpu1" || len(spec.Mounts) != 1 || spec.Mounts[0].Destination != "/gpu" {
		t.Errorf("devices %+v, mounts %+v", spec.Linux.Devices, spec.Mounts)
	}
	if err := r.Inject(spec, []string{"vendor.com/gpu=9"}); err == nil || !strings.Contains(err.Error(), "vendor.com/gpu=9") {
		t.Errorf("a device that is not there: %v", err)
	}
	if err := r.Inject(nil, nil); err != nil {
		t.Errorf("no devices: %v", err)
	}
}

// requesting returns a container that requests n devices of the kind.
func requesting(name, kind string, n int64) v1.Container {
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceName(kind): *resource.NewQuantity(n, resource.DecimalSI)},
	}}
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	kinds := map[string][]string{"v/gpu": {"g0", "g1", "g2", "g3"}, "v/nic": {"n0"}}
	always := v1.ContainerRestartPolicyAlways
	sidecar := requesting("side", "v/gpu", 1)
	sidecar.RestartPolicy = &always
	tests := []struct {
		name             string
		init, containers []v1.Container
		inUse            []string
		want             map[string][]string
		wantErr          string
	}{
		{
			name: "each its own", containers: []v1.Container{requesting("a", "v/gpu", 2), requesting("b", "v/gpu", 1), requesting("c", "v/nic", 1)},
			want: map[string][]string{"a": {"g0", "g1"}, "b": {"g2"}, "c": {"n0"}},
		},
		{
			name: "not those in use", containers: []v1.Container{requesting("a", "v/gpu", 2)}, inUse: []string{"g0", "g2", "n0"},
			want: map[string][]string{"a": {"g1", "g3"}},
		},
		{
			name: "too few", containers: []v1.Container{requesting("a", "v/gpu", 2), requesting("b", "v/gpu", 1)}, inUse: []string{"g0", "g2"},
			wantErr: `container "b" requests 1 devices of kind v/gpu, but 0 are available`,
		},
		{
			name: "init containers hand theirs on", init: []v1.Container{requesting("i", "v/gpu", 3), sidecar, requesting("j", "v/gpu", 3)},
			containers: []v1.Container{requesting("a", "v/gpu", 1)},
			want:       map[string][]string{"i": {"g0", "g1", "g2"}, "side": {"g0"}, "j": {"g1", "g2", "g3"}, "a": {"g1"}},
		},
		{name: "of no kind", containers: []v1.Container{requesting("a", "v/other", 2)}, want: map[string][]string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: tt.init, Containers: tt.containers}}
			inUse := map[string]bool{}
			for _, name := range tt.inUse {
				inUse[name] = true
			}
			got, err := Allocate(pod, kinds, inUse)
			if (err == nil) != (tt.wantErr == "") || err != nil && err.Error() != tt.wantErr {
				t.Fatalf("error %v, want %q", err, tt.wantErr)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := len(tt.want) > 0 || tt.wantErr != ""; Requests(pod, kinds) != want {
				t.Errorf("requested: %t", !want)
			}
		})
	}
}
