package ocispec

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

func TestCapabilities(t *testing.T) {
	t.Parallel()
	without := func(list []string, names ...string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(c string) bool { return slices.Contains(names, c) })
	}
	caps := func(names ...string) []v1.Capability {
		var list []v1.Capability
		for _, n := range names {
			list = append(list, v1.Capability(n))
		}
		return list
	}
	defaults, all := defaultCapabilities(), AllCapabilities()
	tests := []struct {
		name      string
		add, drop []v1.Capability
		available []string
		root      bool // privileged
		want      []string
		wantErr   string
	}{
		{name: "unset", want: defaults},
		{name: "added in either spelling", add: caps("NET_ADMIN", "CAP_SYS_TIME", "sys_nice"), want: append(slices.Clone(defaults), "CAP_NET_ADMIN", "CAP_SYS_TIME", "CAP_SYS_NICE")},
		{name: "added twice", add: caps("CHOWN", "CAP_CHOWN"), want: defaults},
		{name: "dropped", drop: caps("MKNOD", "CAP_KILL"), want: without(defaults, "CAP_MKNOD", "CAP_KILL")},
		{name: "all dropped", drop: caps("ALL"), want: nil},
		{name: "all dropped but one", drop: caps("all"), add: caps("NET_BIND_SERVICE"), want: []string{"CAP_NET_BIND_SERVICE"}},
		{name: "all added", add: caps("ALL"), want: all},
		{name: "all added but one", add: caps("ALL"), drop: caps("SYS_ADMIN"), want: without(all, "CAP_SYS_ADMIN")},
		{name: "added and dropped", add: caps("SYS_ADMIN"), drop: caps("SYS_ADMIN"), want: defaults},
		{name: "all, of those available", add: caps("ALL"), available: []string{"CAP_CHOWN", "CAP_KILL"}, want: []string{"CAP_CHOWN", "CAP_KILL"}},
		{name: "privileged", root: true, drop: caps("ALL"), want: all},
		{name: "privileged, of those available", root: true, available: []string{"CAP_CHOWN"}, want: []string{"CAP_CHOWN"}},
		{name: "unknown", add: caps("FLY"), wantErr: `unknown capability "FLY"`},
		{name: "unknown dropped", drop: caps("CAP_FLY"), wantErr: `unknown capability "CAP_FLY"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: tt.add, Drop: tt.drop}, Privileged: &tt.root}
			got, err := capabilities(s, tt.available)
			if tt.wantErr != "" {
				wantConfigError(t, err, failure.ReasonCreateError, tt.wantErr)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, set := range [][]string{got.Bounding, got.Permitted, got.Effective} {
				if diff := cmp.Diff(tt.want, set); diff != "" {
					t.Error(diff)
				}
			}
			if got.Inheritable != nil || got.Ambient != nil {
				t.Errorf("inheritable %v, ambient %v, want none", got.Inheritable, got.Ambient)
			}
		})
	}
}
