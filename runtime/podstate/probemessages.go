package podstate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/probe"
)

// explain adds to the conditions what the probes last said of the containers that are not
// ready, for the kubelet's messages name the containers alone.
func (o *Observation) explain(conditions []v1.PodCondition) {
	said := o.probeMessages()
	for i := range conditions {
		switch c := &conditions[i]; {
		case said == "":
		case c.Reason == "ContainersNotReady":
			c.Message += "; " + said
		case c.Reason == "PodFailed" && c.Type == v1.ContainersReady:
			c.Message = said
		}
	}
}

// probeMessages tells what the probes last said of containers that are not ready, or of the
// instance that was killed for it.
func (o *Observation) probeMessages() string {
	var all []string
	for _, def := range podspec.Containers(o.Pod) {
		c := o.Containers[def.Name]
		p, asked := o.Probes[c.ID]
		if asked && p.Ready {
			continue
		}
		said := failedProbes(p)
		if len(said) == 0 && o.Killed[c.ID] != "" {
			said = append(said, o.Killed[c.ID])
		}
		if len(said) == 0 && c.Last != nil && c.State != engine.StateExited && o.Killed[c.Last.ContainerID] != "" {
			said = append(said, o.Killed[c.Last.ContainerID])
		}
		for _, text := range said {
			all = append(all, fmt.Sprintf("container %q: %s", def.Name, text))
		}
	}
	return strings.Join(all, "; ")
}

// failedProbes are the last answers of the probes that did not succeed.
func failedProbes(p probe.Status) []string {
	var said []string
	for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
		if a, ok := p.Answers[kind]; ok && a.Result != probe.Success {
			said = append(said, ProbeMessage(kind, a))
		}
	}
	return said
}

// ProbeMessage is what a probe said that did not succeed.
func ProbeMessage(kind probe.Kind, a probe.Answer) string {
	return fmt.Sprintf("%s probe: %s", kind, cmp.Or(strings.TrimSpace(a.Output), "failed"))
}
