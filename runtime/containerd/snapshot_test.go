package containerd

import (
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestLabelled(t *testing.T) {
	t.Parallel()
	mounts := []mount.Mount{{Type: "overlay", Options: []string{"lowerdir=/a"}}, {Type: "bind", Options: []string{"rbind"}}}
	if diff := cmp.Diff(mounts, labelled(mounts, &specs.Spec{Linux: &specs.Linux{}})); diff != "" {
		t.Errorf("without a label:\n%s", diff)
	}
	got := labelled(mounts, &specs.Spec{Linux: &specs.Linux{MountLabel: "u:r:t:s0:c1,c2"}})
	want := []mount.Mount{{Type: "overlay", Options: []string{"lowerdir=/a", `context="u:r:t:s0:c1,c2"`}}, {Type: "bind", Options: []string{"rbind"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(mounts[0].Options) != 1 {
		t.Error("it changed its argument")
	}
}
