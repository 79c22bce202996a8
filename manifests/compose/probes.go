package compose

import (
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
)

// What docker takes if a health check does not say it.
const (
	defaultInterval      = 30 * time.Second
	defaultTimeout       = 30 * time.Second
	defaultStartInterval = 5 * time.Second
	defaultRetries       = 3
)

// probes turns the health check of a service into a readiness probe, and into a startup probe for its start period.
func (p *pod) probes(s *types.ServiceConfig, container *v1.Container) {
	h := s.HealthCheck
	if h == nil || h.Disable {
		return
	}
	if len(h.Test) == 0 {
		p.warn(field(s, "healthcheck"), "has no test: with --healthcheck, that of the image is used, at the intervals of the image")
		return
	}
	command := checkCommand(h.Test)
	if command == nil {
		return
	}
	check := v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}}
	timing := func(key string, d *types.Duration, otherwise time.Duration) int32 {
		if d == nil || *d == 0 {
			return int32(otherwise / time.Second)
		}
		return int32(p.seconds(field(s, "healthcheck", key), time.Duration(*d)))
	}
	interval, timeout := timing("interval", h.Interval, defaultInterval), timing("timeout", h.Timeout, defaultTimeout)
	retries := int32(defaultRetries)
	if h.Retries != nil && *h.Retries > 0 {
		retries = int32(min(*h.Retries, 1<<20))
	}
	container.ReadinessProbe = &v1.Probe{ProbeHandler: check, PeriodSeconds: interval, TimeoutSeconds: timeout, FailureThreshold: retries}
	start := timing("start_period", h.StartPeriod, 0)
	if start == 0 {
		return
	}
	// A container that is not healthy after its start period and as many failures as are allowed then has failed to start.
	period := timing("start_interval", h.StartInterval, defaultStartInterval)
	container.StartupProbe = &v1.Probe{
		ProbeHandler: check, PeriodSeconds: period, TimeoutSeconds: timeout, FailureThreshold: (start + retries*interval + period - 1) / period,
	}
}

// checkCommand returns the command of a health check, nil for none.
func checkCommand(test types.HealthCheckTest) []string {
	switch {
	case test[0] == "CMD" && len(test) > 1:
		return literals(test[1:])
	case test[0] == "CMD-SHELL" && len(test) > 1:
		return []string{"/bin/sh", "-c", literal(test[1])}
	}
	return nil
}

// isChecked says whether a service has a health check of its own.
func isChecked(s types.ServiceConfig) bool {
	return s.HealthCheck != nil && !s.HealthCheck.Disable && len(s.HealthCheck.Test) > 0 && checkCommand(s.HealthCheck.Test) != nil
}
