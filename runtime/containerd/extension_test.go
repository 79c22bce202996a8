package containerd

import (
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestExtensionIsKept(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	last := &engine.Exit{ContainerID: "a-1", Attempt: 1, ExitCode: 3, FinishedAt: at, Message: strings.Repeat("m", 4096)}
	ext, err := extension{PodUID: "p", Name: "n", Attempt: 2, ImageID: "sha256:1", LogPath: "/l", Last: last}.pack()
	if err != nil {
		t.Fatal(err)
	}
	stored := containers.Container{
		ID: "a-2", Image: "localhost/box:1", Labels: map[string]string{"k": "v"}, CreatedAt: at,
		Extensions: map[string]typeurl.Any{extensionKey: ext},
	}
	got, ok := containerOf(stored)
	want := engine.Container{
		ID: "a-2", PodUID: "p", Name: "n", Attempt: 2, Image: "localhost/box:1", ImageID: "sha256:1", LogPath: "/l",
		Labels: map[string]string{"k": "v"}, State: engine.StateCreated, CreatedAt: at, Last: last,
	}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Error(ok, diff)
	}
}

func TestOtherContainersAreNotOurs(t *testing.T) {
	t.Parallel()
	for name, extensions := range map[string]map[string]typeurl.Any{
		"no record":      nil,
		"another's":      {"other": &anypb.Any{TypeUrl: "x", Value: []byte("{}")}},
		"damaged record": {extensionKey: &anypb.Any{TypeUrl: extensionKey, Value: []byte("{")}},
	} {
		if got, ok := containerOf(containers.Container{ID: "a", Extensions: extensions}); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
