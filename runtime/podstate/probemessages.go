package podstate

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
)

// addProbeMessages adds to the conditions why containers are not ready by their probes: the
// kubelet's messages only name the containers.
func (o *Observation) addProbeMessages(conditions []v1.PodCondition) {
	messages := o.probeMessages()
	if messages == "" {
		return
	}
	for i := range conditions {
		switch c := &conditions[i]; {
		case c.Reason == reasonNotReady:
			c.Message += "; " + messages
		case c.Reason == reasonFailed && c.Type == v1.ContainersReady:
			c.Message = messages
		}
	}
}

// probeMessages are the last results of the probes of containers that are not ready, or those
// that an instance was killed for.
func (o *Observation) probeMessages() string {
	var all []string
	for _, def := range podspec.Containers(o.Pod) {
		c := o.Containers[def.Name]
		p := o.Probes[c.ID]
		if p.Ready {
			continue
		}
		messages := failedProbes(p)
		if len(messages) == 0 && o.Killed[c.ID] != "" {
			messages = append(messages, o.Killed[c.ID])
		}
		if len(messages) == 0 && c.Last != nil && c.State != engine.StateExited && o.Killed[c.Last.ContainerID] != "" {
			messages = append(messages, o.Killed[c.Last.ContainerID])
		}
		for _, text := range messages {
			all = append(all, fmt.Sprintf("container %q: %s", def.Name, text))
		}
	}
	return strings.Join(all, "; ")
}

// failedProbes are the messages of the probes that did not succeed last time.
func failedProbes(p probe.Status) []string {
	var messages []string
	for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
		if a, ok := p.Last[kind]; ok && a.Result != probe.Success {
			messages = append(messages, ProbeMessage(kind, a))
		}
	}
	return messages
}

// ProbeFailure is the message of the event of a probe that did not succeed (pkg/kubelet/prober, probe).
func ProbeFailure(kind probe.Kind, a probe.Outcome) string {
	name := strings.ToUpper(string(kind[:1])) + string(kind[1:])
	if a.Result == probe.Unknown {
		return fmt.Sprintf("%s probe errored and resulted in unknown state: %s", name, strings.TrimSpace(a.Output))
	}
	return fmt.Sprintf("%s probe failed: %s", name, strings.TrimSpace(a.Output))
}

// ProbeMessage is the message of a probe that did not succeed.
func ProbeMessage(kind probe.Kind, a probe.Outcome) string {
	return fmt.Sprintf("%s probe: %s", kind, cmp.Or(strings.TrimSpace(a.Output), "failed"))
}
