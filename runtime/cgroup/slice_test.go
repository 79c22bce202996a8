package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	const uid = "6f1f0d0c-1"
	files := location{path: "/runonce-1a2b/burstable/pod" + uid}
	slice := location{
		path:  "/runonce_1a2b.slice/runonce_1a2b-burstable.slice/runonce_1a2b-burstable-pod6f1f0d0c_1.slice",
		slice: "runonce_1a2b-burstable-pod6f1f0d0c_1.slice",
	}
	tests := []struct {
		name   string
		slices bool
		there  string
		want   location
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
			tree := Tree{Parent: "/runonce-1a2b", systemd: tt.slices, dirs: map[string]string{"cpu": t.TempDir()}}
			if err := os.MkdirAll(filepath.Join(tree.dirs["cpu"], tt.there), 0o755); err != nil {
				t.Fatal(err)
			}
			got := tree.locate(testPod(uid, list("1", ""), nil))
			if got != tt.want || got.parent() != tt.parent {
				t.Errorf("location %+v with parent %s, want %+v with %s", got, got.parent(), tt.want, tt.parent)
			}
		})
	}
	up := slice.above()
	if want := (location{"/runonce_1a2b.slice/runonce_1a2b-burstable.slice", "runonce_1a2b-burstable.slice"}); up != want {
		t.Errorf("above it is %+v, want %+v", up, want)
	}
	if top := up.above().above(); top != (location{path: "/"}) {
		t.Errorf("above all is %+v", top)
	}
}

func TestProperties(t *testing.T) {
	t.Parallel()
	accounting := func(io string) []dbus.Property {
		return []dbus.Property{property("CPUAccounting", true), property("MemoryAccounting", true), property("TasksAccounting", true), property(io, true)}
	}
	limited := testPod("g", list("1500m", "1Gi"), list("1501m", "1Gi"))
	tests := []struct {
		name string
		tree Tree
		pod  *v1.Pod
		want []dbus.Property
	}{
		{"v1", Tree{pidsLimit: 100}, limited, append(accounting("BlockIOAccounting"),
			property("CPUShares", uint64(1536)),
			property("CPUQuotaPerSecUSec", uint64(1_510_000)), // whole percents
			property("MemoryLimit", uint64(1<<30)),
			property("TasksMax", uint64(100)),
		)},
		{"v2", Tree{V2: true}, limited, append(accounting("IOAccounting"),
			property("CPUWeight", uint64(138)),
			property("CPUQuotaPerSecUSec", uint64(1_510_000)),
			property("MemoryMax", uint64(1<<30)),
		)},
		{"without limits", Tree{V2: true}, testPod("e", nil, nil), append(accounting("IOAccounting"),
			property("CPUWeight", uint64(1)),
		)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.tree.properties(tt.pod, location{slice: "p.slice"}), cmp.AllowUnexported(godbus.Variant{}, godbus.Signature{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
