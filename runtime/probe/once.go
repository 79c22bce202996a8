package probe

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Once asks a container, which started at the given time, whether it has started and is
// ready: each probe one time, as long as it may take. Thresholds need a past, so that one
// answer decides here. A probe whose initial delay is not over has not succeeded, as in the
// kubelet. Liveness is not asked, for nothing would come of it.
func Once(ctx context.Context, t Target, startedAt time.Time) Status {
	s := Status{Answers: map[Kind]Answer{}}
	if s.Started = t.onceOf(ctx, Startup, startedAt, &s); s.Started {
		s.Ready = t.onceOf(ctx, Readiness, startedAt, &s)
	}
	return s
}

// onceOf reports whether the probe succeeds, or is none.
func (t Target) onceOf(ctx context.Context, k Kind, startedAt time.Time, s *Status) bool {
	p := map[Kind]*v1.Probe{Startup: t.Container.StartupProbe, Readiness: t.Container.ReadinessProbe}[k]
	if p == nil {
		return true
	}
	if time.Since(startedAt) < time.Duration(p.InitialDelaySeconds)*time.Second {
		return false
	}
	a := Check(ctx, t, p)
	s.Answers[k] = a
	return a.Result == Success
}
