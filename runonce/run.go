package runonce

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
)

// errTimeout is the cause of a run that came to its deadline.
var errTimeout = errors.New("the timeout of the run has passed")

// lastLook bounds the look at a pod once the run is over.
const lastLook = 10 * time.Second

// run is one run of a plan.
type run struct {
	rt    Runtime
	o     Options
	goal  goal
	slots semaphore
	pods  []*pod
	jobs  jobs

	mu    sync.Mutex // keeps reports of progress apart
	done  int        // pods at their goal or at their end
	total int
}

// Run carries the plan out and returns one result for each decision, in plan order.
// First it stops what has to go; then it starts the admitted pods, the most important
// first, and brings each to its goal; once all are there, or at their end, it looks at
// each once more, so that no pod counts as running that has died meanwhile. It comes
// back early when ctx is done or the timeout has passed. The options must be valid.
func Run(ctx context.Context, rt Runtime, plan admit.Plan, o Options) []Result {
	o = o.withDefaults()
	r := &run{rt: rt, o: o, goal: goal{until: o.Until, settle: o.Settle}, slots: semaphore{free: o.Parallel}, jobs: jobs{}}
	defer r.jobs.stop()
	results := make([]Result, len(plan.Decisions))
	for i, d := range plan.Decisions {
		results[i] = decided(d)
	}
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Timeout > 0 {
		var stop context.CancelFunc
		work, stop = context.WithDeadlineCause(work, o.Start.Add(o.Timeout), errTimeout)
		defer stop()
	}
	blocked := r.clear(work, plan, results)
	o.Cleared()
	r.pods = r.queue(work, plan.Decisions, results, blocked)
	r.total = len(r.pods)
	r.converge(work)
	r.finish(ctx, work)
	if o.Remove {
		r.removeAll(ctx)
	}
	return results
}

// decided is the result of a pod for which nothing has to be done.
func decided(d admit.Decision) Result {
	res := Result{Pod: d.Pod, Reason: d.Reason, Message: d.Message, By: d.By, Status: v1.PodStatus{Phase: v1.PodPending}}
	switch d.Verdict {
	case admit.Rejected:
		res.Outcome = Rejected
		res.Status = d.Status()
	case admit.Preempted:
		res.Outcome = Preempted
		res.Status = d.Status()
	case admit.Admitted:
		res.Reason, res.Message = "", ""
	}
	return res
}

// queue puts the pods that are to run in the order of their start: by priority, then as
// in the plan. Each queues for a slot now, so that the order holds.
func (r *run) queue(ctx context.Context, ds []admit.Decision, results []Result, blocked map[int]error) []*pod {
	var pods []*pod
	for i, d := range ds {
		if d.Verdict != admit.Admitted || d.Prune {
			continue
		}
		if err := blocked[i]; err != nil {
			results[i].Outcome, results[i].Reason, results[i].Message = unstopped(ctx), "StopFailed", err.Error()
			continue
		}
		pods = append(pods, &pod{r: r, pod: d.Pod, kept: d.Running, res: &results[i]})
	}
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(priority(b.pod), priority(a.pod)) })
	r.joinJobs(ctx, pods)
	for rank, p := range pods {
		p.rank = rank
		if p.turn == nil {
			p.slot = r.slots.reserve(rank)
		}
	}
	return pods
}

func priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// converge brings all pods to their goal or end. When all are there it looks at each
// once more, and starts over for those that are not there any more.
func (r *run) converge(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range r.pods {
		wg.Go(func() { p.subscribe(ctx) })
	}
	wg.Wait()
	for {
		all := newBarrier(r.pods)
		for _, p := range r.pods {
			wg.Go(func() { p.drive(ctx, all) })
		}
		wg.Wait()
		if ctx.Err() != nil {
			return
		}
		var gone atomic.Bool
		for _, p := range r.pods {
			wg.Go(func() {
				if !p.cond.ended && (p.look(ctx) != nil || !p.there()) {
					gone.Store(true)
				}
			})
		}
		wg.Wait()
		if !gone.Load() {
			return
		}
	}
}

// barrier tells when every pod is at its goal or at its end.
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

// set says whether the pod is there. It is false when a pod leaves after all had come
// together.
func (b *barrier) set(p *pod, there bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.missing) == 0 {
		return there
	}
	if !there {
		b.missing[p] = true
		return true
	}
	if delete(b.missing, p); len(b.missing) == 0 {
		close(b.full)
	}
	return true
}

// progress reports what happened to a pod; step is +1 when it has come to its goal or
// end, and -1 when it has left it.
func (r *run) progress(pod *v1.Pod, state, message string, step int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += step
	r.o.Progress(Progress{Pod: pod, State: state, Message: message, Done: r.done, Total: r.total})
}

// since is the time since the run began.
func (r *run) since() time.Duration { return time.Since(r.o.Start) }
