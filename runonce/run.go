package runonce

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// run is one run of a plan.
type run struct {
	rt         Runtime
	o          Options
	node       string // its name
	slots      semaphore
	pods       []*pod
	jobs       jobs
	admissions *admissions             // nil unless pods wait for it
	abort      context.CancelCauseFunc // ends the run
	kept       bool                    // the results are known, and the pods are kept at their goal

	mu       sync.Mutex // serializes progress reports
	done     int        // pods that have reached their goal or have ended
	total    int
	endRound context.CancelFunc
}

// Run carries the plan out and returns one result for each decision, in plan order.
// It first stops the pods that the plan stops, and with Options.Keep keeps those that go on running
// at their goal meanwhile. It then starts the admitted pods, by
// priority, and waits until each has reached its goal or has ended. Then it checks each
// once more, so that a pod that has died meanwhile does not count as running. It returns
// early when ctx is done or the timeout has passed. With Options.Keep it returns only then, or
// when that is closed. The options must be valid.
func Run(ctx context.Context, rt Runtime, plan admit.Plan, o Options) []Result {
	r := newRun(rt, o.withDefaults())
	if plan.Node != nil {
		r.node = plan.Node.Name
	}
	results := plannedResults(plan.Decisions)
	r.recordRefused(plan)
	limited, cancel := r.o.WithTimeout(ctx)
	defer cancel()
	if plan.Queue != nil {
		r.admissions = newAdmissions(r, plan)
	}
	var blocked map[int]error
	r.keepOthers(limited, plan, func() { blocked = r.stopDepartures(limited, plan, results) })
	r.o.AfterStops()
	r.carryOut(limited, plan.Decisions, results, blocked)
	return results
}

func newRun(rt Runtime, o Options) *run {
	return &run{rt: rt, o: o, slots: semaphore{free: o.Parallel}, jobs: jobs{}}
}

// carryOut starts the admitted pods that are not blocked and waits for them. It expects that all has
// stopped that had to.
func (r *run) carryOut(ctx context.Context, ds []admit.Decision, results []Result, blocked map[int]error) {
	defer r.jobs.close()
	work, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	r.abort = abort
	r.pods = r.queue(work, ds, results, blocked)
	r.total = len(r.pods)
	end := r.admissions.begin(work)
	r.converge(work)
	end()
	cause := context.Cause(work)
	r.finish(ctx, cause)
	r.fillRefused(context.WithoutCancel(ctx), results)
	r.o.Concluded(results)
	if r.o.Keep != nil {
		r.keep(work)
		cause = context.Cause(work)
		r.finish(ctx, cause)
	}
	r.remove(ctx, cause)
}

// plannedResults are the results of the pods before any is started.
func plannedResults(ds []admit.Decision) []Result {
	results := make([]Result, 0, len(ds))
	for _, d := range ds {
		results = append(results, plannedResult(d))
	}
	return results
}

// plannedResult is the result of a pod that is not started.
func plannedResult(d admit.Decision) Result {
	res := Result{Pod: d.Pod, By: d.By, Status: v1.PodStatus{Phase: v1.PodPending}}
	if d.Verdict != admit.Admitted && d.Verdict != admit.Queued {
		res.Outcome, res.Reason, res.Message, res.Status = Outcome(d.Verdict), d.Reason, d.Message, d.Status()
	}
	return res
}

// queue sorts the pods to be run by priority, then as in the plan. Those that may start queue
// for a slot now, so that they start in this order. One that turns out not to need its slot, or
// not yet, leaves the queue.
func (r *run) queue(ctx context.Context, ds []admit.Decision, results []Result, blocked map[int]error) []*pod {
	var pods []*pod
	for i, d := range ds {
		if !d.Runs() {
			continue
		}
		if err := blocked[i]; err != nil {
			if results[i].stopFailed(ctx, err); isStoppedByOther(err) && r.o.Keep != nil {
				results[i].Outcome = Removed
			}
			continue
		}
		pods = append(pods, r.podOf(d, &results[i]))
	}
	for _, res := range results {
		if res.Outcome == Failed && r.o.FailFast && !podspec.IsOptional(res.Pod) {
			r.abort(failFastError{podspec.FullName(res.Pod)})
		}
	}
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(admit.Priority(b.pod), admit.Priority(a.pod)) })
	for rank, p := range pods {
		p.rank = rank
	}
	r.joinJobs(ctx, pods)
	r.joinOrder(ctx, ds, results, pods)
	r.admissions.join(pods)
	for _, p := range pods {
		if p.gates.open() {
			p.slot = r.slots.reserve(p.rank, p.wake)
		}
	}
	return pods
}

// converge drives all pods to their goal or end. When all have arrived, it checks each once
// more, and starts another round if one has left its goal.
func (r *run) converge(ctx context.Context) {
	r.each(func(p *pod) {
		var err error
		if p.changes, err = r.rt.Changes(ctx, p.pod); err != nil {
			p.warn(ctx, "could not watch the pod; polling it instead", err)
		}
	})
	for {
		round, end := r.untilKept(ctx)
		r.startRound(end)
		r.each(func(p *pod) { p.drive(ctx, round) })
		end()
		if ctx.Err() != nil || r.isOver() {
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

// keep keeps the pods at their goal until the run is over.
func (r *run) keep(ctx context.Context) {
	r.kept = true
	round, end := r.untilKept(ctx)
	defer end()
	r.startRound(func() {})
	r.each(func(p *pod) { p.drive(ctx, round) })
	<-round.Done()
}

// untilKept returns a context that is done when ctx is, or Options.Keep is closed.
func (r *run) untilKept(ctx context.Context) (context.Context, context.CancelFunc) {
	round, end := context.WithCancel(ctx)
	if r.o.Keep != nil {
		go func() {
			select {
			case <-r.o.Keep:
				end()
			case <-round.Done():
			}
		}()
	}
	return round, end
}

// isOver says whether Options.Keep is closed.
func (r *run) isOver() bool {
	select {
	case <-r.o.Keep:
		return true
	default:
		return false
	}
}

// startRound makes end be called when all pods are done.
func (r *run) startRound(end context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endRound = end
	if r.done == r.total {
		end()
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

// progress reports an event of a pod; step is +1 when the pod has reached its goal or has
// ended, and -1 when it has left its goal.
func (r *run) progress(e Progress, step int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done += step; step > 0 && r.done == r.total {
		r.endRound()
	}
	e.Done, e.Total = r.done, r.total
	r.o.Progress(e)
}

// reset stops a pod that the run starts again.
func (r *run) reset(ctx context.Context, pod *v1.Pod) error {
	if rt, ok := r.rt.(Resetter); ok {
		return rt.Reset(ctx, pod)
	}
	return r.rt.Stop(ctx, pod)
}
