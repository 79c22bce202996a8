package image

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// Docker's defaults for what a health check does not say (moby's daemon/health.go).
const (
	defaultProbeInterval = 30 * time.Second
	defaultProbeTimeout  = 30 * time.Second
	defaultProbeRetries  = 3
)

// Healthcheck returns the health check of an image as a readiness probe, nil if it has none. Its start period is without
// meaning for readiness: a container that has not been healthy yet is not ready, however often the check has failed.
func Healthcheck(h *engine.Healthcheck) *v1.Probe {
	if h == nil || len(h.Test) < 2 {
		return nil
	}
	command := h.Test[1:]
	switch h.Test[0] {
	case "CMD":
	case "CMD-SHELL":
		shell := h.Shell
		if len(shell) == 0 {
			shell = []string{"/bin/sh", "-c"}
		}
		command = append(shell[:len(shell):len(shell)], h.Test[1])
	default: // NONE
		return nil
	}
	p := &v1.Probe{
		ProbeHandler:     v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}},
		PeriodSeconds:    wholeSeconds(h.Interval, defaultProbeInterval),
		TimeoutSeconds:   wholeSeconds(h.Timeout, defaultProbeTimeout),
		SuccessThreshold: 1, FailureThreshold: defaultProbeRetries,
	}
	if h.Retries > 0 {
		p.FailureThreshold = int32(min(h.Retries, 1<<30))
	}
	return p
}

// wholeSeconds rounds up, as a probe has no parts of seconds.
func wholeSeconds(d, otherwise time.Duration) int32 {
	if d <= 0 {
		d = otherwise
	}
	return int32(min((d+time.Second-1)/time.Second, 1<<30))
}
