package runonce

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// removeSlack is what removing a pod may take beyond its grace period.
const removeSlack = time.Minute

// halt is a pod that has to go before anything starts.
type halt struct {
	admit.Departure
	err error
}

// clear stops what has to go: pods that are preempted, replaced or pruned. Nothing is
// started before all of them have stopped, since the plan counts on everything that they
// hold: memory, ports, and names. It returns, by row of the plan, why a pod cannot be
// started.
func (r *run) clear(ctx context.Context, plan admit.Plan, results []Result) map[int]error {
	ds := plan.Decisions
	departures := plan.Departures()
	halts := make([]halt, len(departures))
	var wg sync.WaitGroup
	for i := range halts {
		h := &halts[i]
		h.Departure = departures[i]
		wg.Go(func() {
			r.progress(h.Pod, "Stopping", h.Why, 0)
			if h.err = r.rt.Stop(ctx, h.Pod); h.err != nil {
				h.err = fmt.Errorf("stopping pod %q, which is %s: %w", h.Pod.Name, h.Why, h.err)
			}
			results[h.Row].Elapsed = r.since()
		})
	}
	wg.Wait()
	blocked := map[int]error{}
	for _, h := range halts {
		h.settle(ctx, ds, results, blocked)
	}
	preventOvercommit(plan, halts, blocked)
	return blocked
}

// settle writes down what came of stopping the pod.
func (h halt) settle(ctx context.Context, ds []admit.Decision, results []Result, blocked map[int]error) {
	d, res := ds[h.Row], &results[h.Row]
	switch {
	case h.err != nil && d.Replaces != nil && d.Verdict == admit.Admitted:
		blocked[h.Row] = h.err
	case h.err != nil:
		res.Outcome, res.Reason, res.Message = unstopped(ctx), "StopFailed", h.err.Error()
	case d.Prune:
		res.Outcome, res.Reason, res.Message = Succeeded, "Pruned", "stopped: the pod is no longer in the input"
	}
	if h.err == nil || d.Verdict != admit.Preempted {
		return
	}
	for i := range ds {
		if same(ds[i].Pod, d.By) {
			blocked[i] = h.err
		}
	}
}

// unstopped is the outcome of what could not go on since a pod could not be stopped.
func unstopped(ctx context.Context) Outcome {
	if ctx.Err() != nil {
		return cutOff(context.Cause(ctx))
	}
	return Failed
}

func same(a, b *v1.Pod) bool {
	return a != nil && b != nil && a.UID == b.UID && a.Name == b.Name && a.Namespace == b.Namespace
}

// removeAll removes what this run has started, also when it was interrupted.
func (r *run) removeAll(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range r.pods {
		if !p.begun || p.kept {
			continue
		}
		wg.Go(func() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), podspec.GracePeriod(p.pod)+removeSlack)
			defer cancel()
			r.progress(p.pod, "Stopping", "asked to be removed", 0)
			if err := r.rt.Stop(stop, p.pod); err != nil {
				p.res.RemoveError = err.Error()
			}
		})
	}
	wg.Wait()
}
