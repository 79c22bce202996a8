package images

import (
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// TestUsersOf: the containers of other programs and of other roots count, and a pod counts once.
func TestUsersOf(t *testing.T) {
	t.Parallel()
	img := images.Image{Name: "localhost/x:1", Target: ocispec.Descriptor{Digest: "sha256:a"}}
	pod := map[string]string{engine.LabelPodNamespace: "default", engine.LabelPodName: "web"}
	got := usersOf(img, []containers.Container{
		{ID: "a", Image: "localhost/x:1", Labels: pod},
		{ID: "a2", Image: "localhost/x:1", Labels: pod},
		{ID: "b", Image: "localhost/x@sha256:a"},
		{ID: "c", Image: "localhost/x@sha256:b"},
		{ID: "d", Image: "localhost/y:1", Labels: pod},
		{ID: "e"},
	})
	if diff := cmp.Diff([]string{"b", "default/web"}, got); diff != "" {
		t.Error(diff)
	}
}
