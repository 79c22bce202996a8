package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/cgroup/systemd"
)

func TestPlace(t *testing.T) {
	t.Parallel()
	const uid = "6f1f0d0c-1"
	files := place{path: "/runonce-1a2b/burstable/pod" + uid}
	slice := place{
		path:  "/runonce_1a2b.slice/runonce_1a2b-burstable.slice/runonce_1a2b-burstable-pod6f1f0d0c_1.slice",
		slice: "runonce_1a2b-burstable-pod6f1f0d0c_1.slice",
	}
	tests := []struct {
		name   string
		slices bool
		there  string
		want   place
		parent string
	}{
		{name: "cgroupfs", want: files, parent: files.path},
		{name: "systemd", slices: true, want: slice, parent: slice.slice},
		{name: "a pod keeps its files", slices: true, there: files.path, want: files, parent: files.path},
		{name: "a pod keeps its slice", there: slice.path, want: slice, parent: slice.slice},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := Tree{Parent: "/runonce-1a2b", Slices: tt.slices, dirs: map[string]string{"cpu": t.TempDir()}}
			if err := os.MkdirAll(filepath.Join(tree.dirs["cpu"], tt.there), 0o755); err != nil {
				t.Fatal(err)
			}
			got := tree.place(testPod(uid, list("1", ""), nil))
			if got != tt.want || got.parent() != tt.parent {
				t.Errorf("place %+v with parent %s, want %+v with %s", got, got.parent(), tt.want, tt.parent)
			}
		})
	}
	up := slice.above()
	if want := (place{"/runonce_1a2b.slice/runonce_1a2b-burstable.slice", "runonce_1a2b-burstable.slice"}); up != want {
		t.Errorf("above it is %+v, want %+v", up, want)
	}
	if top := up.above().above(); top != (place{path: "/"}) {
		t.Errorf("above all is %+v", top)
	}
}

func TestProperties(t *testing.T) {
	t.Parallel()
	accounting := func(io string) []systemd.Property {
		return []systemd.Property{{Name: "CPUAccounting", Value: true}, {Name: "MemoryAccounting", Value: true}, {Name: "TasksAccounting", Value: true}, {Name: io, Value: true}}
	}
	limited := testPod("g", list("1500m", "1Gi"), list("1501m", "1Gi"))
	tests := []struct {
		name string
		tree Tree
		pod  *v1.Pod
		want []systemd.Property
	}{
		{"v1", Tree{PidsLimit: 100}, limited, append(accounting("BlockIOAccounting"),
			systemd.Property{Name: "CPUShares", Value: uint64(1536)},
			systemd.Property{Name: "CPUQuotaPerSecUSec", Value: uint64(1_510_000)}, // whole percents
			systemd.Property{Name: "MemoryLimit", Value: uint64(1 << 30)},
			systemd.Property{Name: "TasksMax", Value: uint64(100)},
		)},
		{"v2", Tree{V2: true}, limited, append(accounting("IOAccounting"),
			systemd.Property{Name: "CPUWeight", Value: uint64(138)},
			systemd.Property{Name: "CPUQuotaPerSecUSec", Value: uint64(1_510_000)},
			systemd.Property{Name: "MemoryMax", Value: uint64(1 << 30)},
		)},
		{"without limits", Tree{V2: true}, testPod("e", nil, nil), append(accounting("IOAccounting"),
			systemd.Property{Name: "CPUWeight", Value: uint64(1)},
		)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.tree.properties(tt.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
