// Package record is what the engine keeps with a container in containerd's metadata store.
package record

import (
	"encoding/json"
	"fmt"

	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/containerd/v2/core/containers"
	"google.golang.org/protobuf/types/known/anypb"
)

// Extension is the key of our record in a container's extensions. Labels hold 4096 bytes
// at most, and a termination message alone may have as many.
const Extension = "runonce"

// Meta is what containerd itself has no place for.
type Meta struct {
	PodUID  string       `json:"podUID"`
	Name    string       `json:"name"`
	Attempt int          `json:"attempt"`
	ImageID string       `json:"imageID"`
	LogPath string       `json:"logPath"`
	Last    *engine.Exit `json:"last,omitempty"`
}

// Pack returns m as the value of the extension.
func (m Meta) Pack() (*anypb.Any, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding the record: %w", err)
	}
	return &anypb.Any{TypeUrl: Extension, Value: data}, nil
}

// Container returns what the store knows of a container, and false when it is not ours.
// Its state is Created: the store knows nothing of processes.
func Container(c containers.Container) (engine.Container, bool) {
	ext, ok := c.Extensions[Extension]
	if !ok {
		return engine.Container{}, false
	}
	var m Meta
	if err := json.Unmarshal(ext.GetValue(), &m); err != nil {
		return engine.Container{}, false
	}
	return engine.Container{
		ID:        c.ID,
		PodUID:    m.PodUID,
		Name:      m.Name,
		Attempt:   m.Attempt,
		Image:     c.Image,
		ImageID:   m.ImageID,
		LogPath:   m.LogPath,
		Labels:    c.Labels,
		State:     engine.StateCreated,
		CreatedAt: c.CreatedAt,
		Last:      m.Last,
	}, true
}
