package runtime

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/probe"
)

// The kubelet's reasons of events (pkg/kubelet/events).
const (
	eventPulling             = "Pulling"
	eventPulled              = "Pulled"
	eventStarted             = "Started"
	eventKilling             = "Killing"
	eventFailed              = "Failed"
	eventBackOff             = "BackOff"
	eventUnhealthy           = "Unhealthy"
	eventFailedSandbox       = "FailedCreatePodSandBox"
	eventFailedPostStartHook = "FailedPostStartHook"
	eventFailedPreStopHook   = "FailedPreStopHook"
)

// event reports what happens to the pod, in the kubelet's words.
func (p *Pods) event(pod *v1.Pod, reason, format string, args ...any) {
	if p.o.Event == nil {
		return
	}
	kind := v1.EventTypeWarning
	switch reason {
	case eventPulling, eventPulled, eventStarted, eventKilling:
		kind = v1.EventTypeNormal
	}
	p.o.Event(pod, kind, reason, fmt.Sprintf(format, args...))
}

// failureEvent reports why a container, or what the pod needs before its containers, could not be
// started. reason is that of the status.
func (p *Pods) failureEvent(pod *v1.Pod, reason string, err error) {
	byReason := map[string]string{
		failure.ReasonFailedMount: failure.ReasonFailedMount, podstate.ReasonSandboxError: eventFailedSandbox,
		podstate.ReasonPostStartHook: eventFailedPostStartHook,
	}
	if known, ok := byReason[reason]; ok {
		p.event(pod, known, "%v", err)
		return
	}
	p.event(pod, eventFailed, "Error: %s: %v", reason, err)
}

// probeEvents reports the probes that have failed since the status before.
func (p *Pods) probeEvents(pod *v1.Pod, container string, before, now probe.Status) {
	for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
		if a, ok := now.Last[kind]; ok && a.Result != probe.Success && a != before.Last[kind] {
			p.event(pod, eventUnhealthy, "container %s: %s", container, podstate.ProbeMessage(kind, a))
		}
	}
}
