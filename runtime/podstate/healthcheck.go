package podstate

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// SetHealthcheck notes in the labels of a container which readiness probe its image has given it; nil for none. The pod does
// not have it, since the image may change while the pod stays the same.
func SetHealthcheck(labels map[string]string, p *v1.Probe) {
	if p != nil {
		text, _ := json.Marshal(p) // texts and numbers
		labels[engine.LabelHealthcheck] = string(text)
	}
}

// WithHealthcheck returns the definition of the container with the readiness probe that its image has given it, if any.
func WithHealthcheck(def *v1.Container, c engine.Container) *v1.Container {
	text := c.Labels[engine.LabelHealthcheck]
	p := &v1.Probe{}
	if def.ReadinessProbe != nil || text == "" || json.Unmarshal([]byte(text), p) != nil {
		return def
	}
	with := *def
	with.ReadinessProbe = p
	return &with
}
