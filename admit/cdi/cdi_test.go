package cdi

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const gpus = `cdiVersion: 0.6.0
kind: nvidia.com/gpu
devices:
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/dri/card1}]}}
- {name: "1", containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}}
- {name: GPU-4711, containerEdits: {deviceNodes: [{path: /dev/dri/card1}, {path: /dev/nvidia0}]}}
- {name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}]}}
`

func TestDevices(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   map[string]string
		want map[string]int64
	}{
		{"none", nil, map[string]int64{}},
		{"one device by two names, and all", map[string]string{"etc/cdi/nvidia.yaml": gpus}, map[string]int64{"nvidia.com/gpu": 2}},
		{"no device nodes", map[string]string{"run/cdi/x.json": `{"kind":"example.com/x","devices":[{"name":"a"},{"name":"b"}]}`}, map[string]int64{"example.com/x": 2}},
		{"a later directory wins", map[string]string{
			"etc/cdi/a.yaml": gpus,
			"run/cdi/a.yml":  strings.ReplaceAll(gpus, "[{path: /dev/nvidia1}]", "[{path: /dev/nvidia0}, {path: /dev/dri/card1}]"),
		}, map[string]int64{"nvidia.com/gpu": 1}},
		{"other files", map[string]string{"etc/cdi/README": "x", "etc/cdi/y.yaml.bak": "{"}, map[string]int64{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fsys := fstest.MapFS{}
			for name, text := range test.in {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			got, err := Devices(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDevicesFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in, want string }{
		{"no YAML", "{", "counting devices: /etc/cdi/a.yaml: "},
		{"no kind", "devices: []", `counting devices: /etc/cdi/a.yaml: kind "": must be VENDOR/CLASS`},
		{"no vendor", "kind: gpu", `counting devices: /etc/cdi/a.yaml: kind "gpu": must be VENDOR/CLASS`},
		{"too large", strings.Repeat("#", Size+1), "counting devices: /etc/cdi/a.yaml: larger than 4194304 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := Devices(fstest.MapFS{"etc/cdi/a.yaml": {Data: []byte(test.in)}})
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func FuzzDevices(f *testing.F) {
	f.Add([]byte(gpus))
	f.Add([]byte(`{"kind":"a.b/c","devices":[{"name":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		counts, err := Devices(fstest.MapFS{"run/cdi/a.yaml": {Data: data}})
		if err == nil && len(counts) != 1 {
			t.Errorf("%d kinds in one specification", len(counts))
		}
	})
}
