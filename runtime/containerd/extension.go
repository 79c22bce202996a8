package containerd

import (
	"encoding/json"
	"fmt"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/containerd/v2/core/containers"
	"google.golang.org/protobuf/types/known/anypb"
)

// extensionKey is the key of our data in a container's extensions. Labels hold at most 4096
// bytes, and a termination message alone may have as many.
const extensionKey = "runonce"

// extension is what the engine stores with a container in containerd's metadata store and
// containerd has no field for.
type extension struct {
	PodUID  string       `json:"podUID"`
	Name    string       `json:"name"`
	Attempt int          `json:"attempt"`
	ImageID string       `json:"imageID"`
	Digest  string       `json:"imageDigest,omitempty"`
	LogPath string       `json:"logPath"`
	Last    *engine.Exit `json:"last,omitempty"`
}

// pack encodes x.
func (x extension) pack() (*anypb.Any, error) {
	data, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("encoding the record: %w", err)
	}
	return &anypb.Any{TypeUrl: extensionKey, Value: data}, nil
}

// containerOf returns what the metadata store knows of a container, and false when it is not
// ours. Its state is Created: the store knows nothing of processes.
func containerOf(c containers.Container) (engine.Container, bool) {
	ext, ok := c.Extensions[extensionKey]
	if !ok {
		return engine.Container{}, false
	}
	var x extension
	if err := json.Unmarshal(ext.GetValue(), &x); err != nil {
		return engine.Container{}, false
	}
	return engine.Container{
		ID:        c.ID,
		PodUID:    x.PodUID,
		Name:      x.Name,
		Attempt:   x.Attempt,
		Image:     c.Image,
		ImageID:   x.ImageID,
		LogPath:   x.LogPath,
		Labels:    c.Labels,
		State:     engine.StateCreated,
		CreatedAt: c.CreatedAt,

		ImageDigest: x.Digest,
		Last:        x.Last,
	}, true
}
