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
	"github.com/runonce/runonce/runonce/goal"
	"github.com/runonce/runonce/runonce/job"
)

// errTimeout is the cause of a run that came to its deadline.
var errTimeout = errors.New("the timeout of the run has passed")

// lastLook bounds the look at a pod once the run is over.
const lastLook = 10 * time.Second

// run is one run of a plan.
type run struct {
	rt    Runtime
	o     Options
	goal  goal.Goal
	gate  gate
	pods  []*pod
	jobs  job.Jobs
	tally tally
}

// Run carries the plan out and returns one result for each decision, in plan order.
// First it stops what has to go; then it starts the admitted pods, the most important
// first, and brings each to its goal; once all are there, or at their end, it looks at
// each once more, so that no pod counts as running that has died meanwhile. It comes
// back early when ctx is done or the timeout has passed. The options must be valid.
func Run(ctx context.Context, rt Runtime, plan admit.Plan, o Options) []Result {
	o = o.withDefaults()
	r := &run{rt: rt, o: o, goal: goal.Goal{Until: o.Until, Settle: o.Settle}, jobs: job.Jobs{}}
	defer r.jobs.Stop()
	r.gate.free = o.Parallel
	results := make([]Result, len(plan.Decisions))
	for i, d := range plan.Decisions {
		results[i] = decided(d)
	}
	work, cancel := context.WithCancel(ctx)
	if o.Timeout > 0 {
		work, cancel = context.WithDeadlineCause(ctx, o.Start.Add(o.Timeout), errTimeout)
	}
	defer cancel()
	blocked := r.clear(work, plan, results)
	o.Cleared()
	r.pods = r.line(work, plan.Decisions, results, blocked)
	r.tally.total = len(r.pods)
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

// line puts the pods that are to run in the order of their start: by priority, then as
// in the plan. Each takes its place at the gate now, so that the order holds.
func (r *run) line(ctx context.Context, ds []admit.Decision, results []Result, blocked map[int]error) []*pod {
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
	r.enlist(ctx, pods)
	for rank, p := range pods {
		p.rank = rank
		if p.turn == nil {
			p.ticket = r.gate.queue(rank)
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
		all := newAssembly(r.pods)
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
				if !p.over && (p.look(ctx) != nil || p.view.Standing == goal.Underway) {
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

// assembly tells when every pod is at its goal or at its end.
type assembly struct {
	mu      sync.Mutex
	missing int
	full    chan struct{}
}

func newAssembly(pods []*pod) *assembly {
	a := &assembly{full: make(chan struct{})}
	for _, p := range pods {
		if !p.over {
			a.missing++
		}
	}
	if a.missing == 0 {
		close(a.full)
	}
	return a
}

// arrive says that one more pod is there.
func (a *assembly) arrive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.missing--; a.missing == 0 {
		close(a.full)
	}
}

// depart takes arrive back. It is false when all had come together before.
func (a *assembly) depart() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.missing == 0 {
		return false
	}
	a.missing++
	return true
}

// tally counts the pods that are done, and keeps reports of progress apart.
type tally struct {
	mu    sync.Mutex
	done  int
	total int
}

// progress reports what happened to a pod; step is +1 when it has come to its goal or
// end, and -1 when it has left it.
func (r *run) progress(pod *v1.Pod, state, message string, step int) {
	r.tally.mu.Lock()
	defer r.tally.mu.Unlock()
	r.tally.done += step
	r.o.Progress(Progress{Pod: pod, State: state, Message: message, Done: r.tally.done, Total: r.tally.total})
}

// since is the time since the run began.
func (r *run) since() time.Duration { return time.Since(r.o.Start) }
