package probe

import (
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

// Status is what the probes say of a container that runs.
type Status struct {
	Started bool
	Ready   bool
	// Failed is Startup or Liveness when that probe wants the container restarted.
	Failed Kind
	// Since is when Ready last changed, for whoever keeps the status.
	Since time.Time
	// Answers are the last of each probe.
	Answers map[Kind]Answer
}

// Watch probes one instance of a container, which started at the given time, until ctx is
// done, a probe wants it restarted, or nothing is left to ask. It calls report with the
// status at the beginning and whenever that changes, one call at a time; report must not
// block. Until a startup probe succeeds no other runs; a container without one has
// started. It is ready when it has started and its readiness probe, if any, says so
// (pkg/kubelet/prober worker.doProbe).
func Watch(ctx context.Context, t Target, startedAt time.Time, report func(Status)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := t.Container
	w := &watch{target: t, startedAt: startedAt, report: report, status: Status{Answers: map[Kind]Answer{}}}
	w.change(func(s *Status) {
		s.Started = c.StartupProbe == nil
		s.Ready = s.Started && c.ReadinessProbe == nil
	})
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
	s.Answers = maps.Clone(s.Answers)
	w.report(s)
}

// answer notes a probe's answer, if it is a new one.
func (w *watch) answer(k Kind, a Answer) {
	w.mu.Lock()
	known := w.status.Answers[k] == a
	w.mu.Unlock()
	if !known {
		w.change(func(s *Status) { s.Answers[k] = a })
	}
}

// startup reports whether the container has started in the end.
func (w *watch) startup(ctx context.Context, p *v1.Probe) bool {
	started := false
	w.ask(ctx, Startup, p, func(r Result) bool {
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

// readiness keeps the container's readiness up to date.
func (w *watch) readiness(ctx context.Context, p *v1.Probe) {
	ready := false
	w.ask(ctx, Readiness, p, func(r Result) bool {
		if now := r == Success; now != ready {
			ready = now
			w.change(func(s *Status) { s.Ready = now })
		}
		return true
	})
}

// liveness reports whether the container was found not to be alive.
func (w *watch) liveness(ctx context.Context, p *v1.Probe) bool {
	dead := false
	w.ask(ctx, Liveness, p, func(r Result) bool {
		if dead = r == Failure; dead {
			// What is about to be killed serves nobody.
			w.change(func(s *Status) { s.Failed, s.Ready = Liveness, false })
		}
		return !dead
	})
	return dead
}

// ask carries out a probe, first when the container is as old as its initial delay and
// then once a period, and tells decided each result that has come as many times in a row
// as its threshold wants. It goes on as long as decided returns true.
func (w *watch) ask(ctx context.Context, k Kind, p *v1.Probe, decided func(Result) bool) {
	if !wait(ctx, time.Until(w.startedAt.Add(time.Duration(p.InitialDelaySeconds)*time.Second))) {
		return
	}
	ticker := time.NewTicker(Period(p))
	defer ticker.Stop()
	count := counter{success: int(max(1, p.SuccessThreshold)), failure: failureThreshold(p)}
	for {
		a := Check(ctx, w.target, p)
		if ctx.Err() != nil {
			return
		}
		w.answer(k, a)
		if count.reached(a.Result) && !decided(a.Result) {
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
	success, failure int // thresholds
	last             Result
	run              int
}

// reached reports whether the result is one too many or enough. What could not be found
// out leaves the count as it is.
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

// Period returns the time from one probe to the next, 10 s unless it says otherwise.
func Period(p *v1.Probe) time.Duration {
	if p.PeriodSeconds <= 0 {
		return 10 * time.Second
	}
	return time.Duration(p.PeriodSeconds) * time.Second
}

func failureThreshold(p *v1.Probe) int {
	if p.FailureThreshold <= 0 {
		return 3
	}
	return int(p.FailureThreshold)
}

// wait returns false when ctx is done first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
