package probe

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Kind is one of a container's three probes.
type Kind string

// The probes of a container.
const (
	Startup   Kind = "startup"
	Readiness Kind = "readiness"
	Liveness  Kind = "liveness"
)

// Status is the state of a running container by its probes.
type Status struct {
	Started bool
	Ready   bool
	// Failed is Startup or Liveness when the container has to be restarted for that probe.
	Failed Kind
	// Since is when Ready last changed. Callers of Watch set it.
	Since time.Time
	// Last are the last outcomes of each probe.
	Last map[Kind]Outcome
}

// Initial is the status of a container of which no probe has run.
func Initial(c *v1.Container) Status {
	started := c.StartupProbe == nil
	return Status{Started: started, Ready: started && c.ReadinessProbe == nil, Last: map[Kind]Outcome{}}
}

// Once runs the startup and the readiness probe of a container, which started at the given time,
// one time each. Thresholds do not count. A probe whose initial delay has not passed has not
// succeeded, as in the kubelet.
func Once(ctx context.Context, t Target, startedAt time.Time) Status {
	s := Status{Last: map[Kind]Outcome{}}
	succeeds := func(k Kind, p *v1.Probe) bool {
		if p == nil {
			return true
		}
		// It has not run for less than nothing: the clock was set back.
		if ran := time.Since(startedAt); ran >= 0 && ran < initialDelay(p) {
			return false
		}
		s.Last[k] = Check(ctx, t, p)
		return s.Last[k].Result == Success
	}
	s.Started = succeeds(Startup, t.Container.StartupProbe)
	s.Ready = s.Started && succeeds(Readiness, t.Container.ReadinessProbe)
	return s
}

// Watch probes one instance of a container, which started at the given time, until ctx is
// done, the container has to be restarted, or it has no more probes to run. It calls report
// with the status at the beginning and whenever that changes, one call at a time; report must
// not block. No other probe runs until the startup probe, if any, succeeds; then the container
// has started. It is ready when it has started and its readiness probe, if any, succeeds
// (pkg/kubelet/prober worker.doProbe).
func Watch(ctx context.Context, t Target, startedAt time.Time, report func(Status)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := t.Container
	w := &watch{target: t, startedAt: startedAt, report: report, status: Initial(c)}
	w.change(func(*Status) {})
	if p := c.StartupProbe; p != nil && !w.startup(ctx, p) {
		return
	}
	var wg sync.WaitGroup
	if p := c.ReadinessProbe; p != nil {
		wg.Go(func() { w.readiness(ctx, p) })
	}
	if p := c.LivenessProbe; p != nil {
		wg.Go(func() {
			if w.liveness(ctx, p) {
				cancel()
			}
		})
	}
	wg.Wait()
}

// watch is one instance of a container that is probed.
type watch struct {
	target    Target
	startedAt time.Time
	report    func(Status)

	mu     sync.Mutex
	status Status
}

// change changes the status and reports it.
func (w *watch) change(f func(*Status)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.status)
	s := w.status
	s.Last = maps.Clone(s.Last)
	w.report(s)
}

// setLast sets a probe's last outcome, if it has changed.
func (w *watch) setLast(k Kind, o Outcome) {
	w.mu.Lock()
	known := w.status.Last[k] == o
	w.mu.Unlock()
	if !known {
		w.change(func(s *Status) { s.Last[k] = o })
	}
}

// startup runs the startup probe and reports whether the container has started.
func (w *watch) startup(ctx context.Context, p *v1.Probe) bool {
	started := false
	w.run(ctx, Startup, p, func(r Result) bool {
		started = r == Success
		w.change(func(s *Status) {
			s.Started = started
			s.Ready = started && w.target.Container.ReadinessProbe == nil
			if !started {
				s.Failed = Startup
			}
		})
		return false
	})
	return started
}

// readiness runs the readiness probe.
func (w *watch) readiness(ctx context.Context, p *v1.Probe) {
	ready := false
	w.run(ctx, Readiness, p, func(r Result) bool {
		if now := r == Success; now != ready {
			ready = now
			w.change(func(s *Status) { s.Ready = now })
		}
		return true
	})
}

// liveness runs the liveness probe and reports whether the container has to be restarted.
func (w *watch) liveness(ctx context.Context, p *v1.Probe) bool {
	dead := false
	w.run(ctx, Liveness, p, func(r Result) bool {
		if dead = r == Failure; dead {
			// What is about to be killed is not ready.
			w.change(func(s *Status) { s.Failed, s.Ready = Liveness, false })
		}
		return !dead
	})
	return dead
}

// run runs a probe after its initial delay and then once a period, and calls decided with each
// result that has reached its threshold. It continues as long as decided returns true.
func (w *watch) run(ctx context.Context, k Kind, p *v1.Probe, decided func(Result) bool) {
	select {
	// Not longer if the clock was set back.
	case <-time.After(min(initialDelay(p), time.Until(w.startedAt.Add(initialDelay(p))))):
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(time.Duration(cmp.Or(p.PeriodSeconds, 10)) * time.Second)
	defer ticker.Stop()
	count := counter{success: cmp.Or(p.SuccessThreshold, 1), failure: cmp.Or(p.FailureThreshold, 3)}
	for {
		o := Check(ctx, w.target, p)
		if ctx.Err() != nil {
			return
		}
		if w.target.Checked != nil {
			w.target.Checked(k, o.Result)
		}
		w.setLast(k, o)
		if count.reached(o.Result) && !decided(o.Result) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// counter counts equal results in a row.
type counter struct {
	success, failure int32 // thresholds
	last             Result
	run              int32
}

// reached reports whether the result has reached its threshold. Unknown leaves the count as it
// is.
func (c *counter) reached(r Result) bool {
	if r == Unknown {
		return false
	}
	if r != c.last {
		c.last, c.run = r, 0
	}
	c.run++
	if r == Success {
		return c.run >= c.success
	}
	return c.run >= c.failure
}

func initialDelay(p *v1.Probe) time.Duration {
	return time.Duration(p.InitialDelaySeconds) * time.Second
}
