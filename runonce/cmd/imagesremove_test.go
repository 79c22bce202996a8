package cmd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce/cmd/backend"
)

// TestUnused: what a pod uses, what is another program's, and unless it is asked for, what came
// with an archive, stays.
func TestUnused(t *testing.T) {
	t.Parallel()
	const a, b = "sha256:aaaa", "sha256:bbbb"
	pod := func(name, image string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Image: image}}}}
		p.Namespace, p.Name = "default", name
		return p
	}
	hex := strings.Repeat("a", 64)
	images := []backend.Image{
		{Ref: "localhost/tag:1", Digest: a},
		{Ref: "localhost/locked:1", Digest: "sha256:" + hex},
		{Ref: "localhost/locked:2", Digest: b},
		{Ref: "localhost/archive:1", Digest: a, Pinned: true},
		{Ref: "localhost/foreign:1", Digest: a, Foreign: true},
		{Ref: "localhost/container:1", Digest: a, UsedBy: []string{"other"}},
		{Ref: "localhost/old:1", Digest: b},
	}
	addUsers(images, []*v1.Pod{pod("y", "localhost/tag:1"), pod("x", "localhost/tag:1"), pod("x", "localhost/tag:1"), pod("z", "localhost/locked:1@sha256:"+hex)})
	if diff := cmp.Diff([]string{"default/x", "default/y"}, images[0].UsedBy); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"default/z"}, images[1].UsedBy); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"localhost/locked:2", "localhost/old:1"}, unused(images, false)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"localhost/locked:2", "localhost/archive:1", "localhost/old:1"}, unused(images, true)); diff != "" {
		t.Error(diff)
	}
	for _, tt := range []struct{ arg, want, err string }{
		{"localhost/old:1", "localhost/old:1", ""},
		{"localhost/archive:1", "localhost/archive:1", ""},
		{"localhost/old", "", `image "localhost/old" is not present`},
		{"localhost/foreign:1", "", `image "localhost/foreign:1" was neither pulled nor imported by runonce`},
		{"localhost/container:1", "", `image "localhost/container:1" is used by other`},
		{"localhost/locked@sha256:" + hex, "", `is used by default/z`},
		{"A B", "", "couldn't parse image name"},
	} {
		refs, err := removable(images, []string{tt.arg})
		if strings.Join(refs, " ") != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, %v", tt.arg, refs, err)
		}
	}
}
