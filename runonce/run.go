package runonce

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
)

// errTimeout is the cause of a context that has reached the deadline of the run.
var errTimeout = errors.New("the timeout of the run has passed")

// run is one run of a plan.
type run struct {
	rt    Runtime
	o     Options
	goal  goal
	slots semaphore
	pods  []*pod
	jobs  jobs

	mu    sync.Mutex // serializes progress reports
	done  int        // pods that have reached their goal or have ended
	total int
}

// Run carries the plan out and returns one result for each decision, in plan order.
// It first stops the pods that the plan stops. It then starts the admitted pods, by
// priority, and waits until each has reached its goal or has ended. Then it checks each
// once more, so that a pod that has died meanwhile does not count as running. It returns
// early when ctx is done or the timeout has passed. The options must be valid.
func Run(ctx context.Context, rt Runtime, plan admit.Plan, o Options) []Result {
	o = o.withDefaults()
	r := &run{rt: rt, o: o, goal: goal{until: o.Until, settle: o.Settle}, slots: semaphore{free: o.Parallel}, jobs: jobs{}}
	defer r.jobs.close()
	results := make([]Result, len(plan.Decisions))
	for i, d := range plan.Decisions {
		results[i] = plannedResult(d)
	}
	work, cancel := o.WithTimeout(ctx)
	defer cancel()
	blocked := r.stopDepartures(work, plan, results)
	o.AfterStops()
	r.pods = r.queue(work, plan.Decisions, results, blocked)
	r.total = len(r.pods)
	r.converge(work)
	r.finish(ctx, context.Cause(work))
	if o.Remove {
		r.removeAll(ctx)
	}
	return results
}

// plannedResult is the result of a pod that is not started.
func plannedResult(d admit.Decision) Result {
	res := Result{Pod: d.Pod, By: d.By, Status: v1.PodStatus{Phase: v1.PodPending}}
	if d.Verdict != admit.Admitted {
		res.Outcome, res.Reason, res.Message, res.Status = Outcome(d.Verdict), d.Reason, d.Message, d.Status()
	}
	return res
}

// queue sorts the pods to be run by priority, then as in the plan. Each reserves a slot
// now, so that they start in this order.
func (r *run) queue(ctx context.Context, ds []admit.Decision, results []Result, blocked map[int]error) []*pod {
	var pods []*pod
	for i, d := range ds {
		if d.Verdict != admit.Admitted || d.Prune {
			continue
		}
		if err := blocked[i]; err != nil {
			results[i].stopFailed(ctx, err)
			continue
		}
		pods = append(pods, &pod{r: r, pod: d.Pod, kept: d.Running, res: &results[i]})
	}
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(admit.Priority(b.pod), admit.Priority(a.pod)) })
	r.joinJobs(ctx, pods)
	for rank, p := range pods {
		p.rank = rank
		if p.mayStart == nil {
			p.slot = r.slots.reserve(rank)
		}
	}
	return pods
}

// converge drives all pods to their goal or end. When all have arrived, it checks each once
// more, and starts over if one has left its goal.
func (r *run) converge(ctx context.Context) {
	r.each(func(p *pod) { p.subscribe(ctx) })
	for {
		all := newBarrier(r.pods)
		r.each(func(p *pod) { p.drive(ctx, all) })
		if ctx.Err() != nil {
			return
		}
		var left atomic.Bool
		r.each(func(p *pod) {
			if !p.cond.ended && (p.observe(ctx) != nil || !p.done()) {
				left.Store(true)
			}
		})
		if !left.Load() {
			return
		}
	}
}

// each calls f for all pods at once.
func (r *run) each(f func(p *pod)) {
	var wg sync.WaitGroup
	for _, p := range r.pods {
		wg.Go(func() { f(p) })
	}
	wg.Wait()
}

// barrier tells when every pod has reached its goal or has ended.
type barrier struct {
	mu      sync.Mutex
	missing map[*pod]bool
	full    chan struct{} // closed when none is missing
}

func newBarrier(pods []*pod) *barrier {
	b := &barrier{missing: map[*pod]bool{}, full: make(chan struct{})}
	for _, p := range pods {
		if !p.cond.ended {
			b.missing[p] = true
		}
	}
	if len(b.missing) == 0 {
		close(b.full)
	}
	return b
}

// set notes whether the pod is done. It returns false for a pod that leaves its goal after
// all had arrived.
func (b *barrier) set(p *pod, done bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.missing) == 0 {
		return done
	}
	if !done {
		b.missing[p] = true
		return true
	}
	if delete(b.missing, p); len(b.missing) == 0 {
		close(b.full)
	}
	return true
}

// progress reports an event of a pod; step is +1 when the pod has reached its goal or has
// ended, and -1 when it has left its goal.
func (r *run) progress(pod *v1.Pod, state, message string, step int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += step
	r.o.Progress(Progress{Pod: pod, State: state, Message: message, Done: r.done, Total: r.total})
}
