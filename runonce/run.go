package runonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// errTimeout is the cause of a context that has reached the deadline of the run.
var errTimeout = errors.New("the timeout of the run has passed")

// failFastError is the cause of a context that is done because a pod has failed.
type failFastError struct{ pod string }

func (e failFastError) Error() string {
	return fmt.Sprintf("the run ended because pod %q failed", e.pod)
}

func isFailFast(cause error) bool {
	var e failFastError
	return errors.As(cause, &e)
}

// run is one run of a plan.
type run struct {
	rt    Runtime
	o     Options
	goal  goal
	slots semaphore
	pods  []*pod
	jobs  jobs
	abort context.CancelCauseFunc // ends the run
	kept  bool                    // the results are known, and the pods are kept at their goal

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
	o = o.withDefaults()
	r := &run{rt: rt, o: o, goal: goal{until: o.Until, settle: o.Settle}, slots: semaphore{free: o.Parallel}, jobs: jobs{}}
	defer r.jobs.close()
	results := make([]Result, len(plan.Decisions))
	for i, d := range plan.Decisions {
		results[i] = plannedResult(d)
	}
	limited, cancel := o.WithTimeout(ctx)
	defer cancel()
	work, abort := context.WithCancelCause(limited)
	defer abort(nil)
	r.abort = abort
	var blocked map[int]error
	r.keepOthers(work, plan, func() { blocked = r.stopDepartures(work, plan, results) })
	o.AfterStops()
	r.pods = r.queue(work, plan.Decisions, results, blocked)
	r.total = len(r.pods)
	r.converge(work)
	cause := context.Cause(work)
	r.finish(ctx, cause)
	o.Concluded(results)
	if o.Keep != nil {
		r.keep(work)
		cause = context.Cause(work)
		r.finish(ctx, cause)
	}
	if o.Remove {
		r.removeAll(ctx, cause)
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

// queue sorts the pods to be run by priority, then as in the plan. Those that may start queue
// for a slot now, so that they start in this order. One that turns out not to need its slot, or
// not yet, leaves the queue.
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
	for _, res := range results {
		if res.Outcome == Failed && r.o.FailFast {
			r.abort(failFastError{podspec.FullName(res.Pod)})
		}
	}
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(admit.Priority(b.pod), admit.Priority(a.pod)) })
	r.joinJobs(ctx, pods)
	for rank, p := range pods {
		if p.rank = rank; p.active() {
			p.slot = r.slots.reserve(rank)
		}
	}
	return pods
}

// converge drives all pods to their goal or end. When all have arrived, it checks each once
// more, and starts another round if one has left its goal.
func (r *run) converge(ctx context.Context) {
	r.each(func(p *pod) { p.subscribe(ctx) })
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
