package runonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// Removing a pod may take removeSlack beyond its grace period, and removeShare more for each pod
// that is removed at the same time and may be served first; but only timeoutSlack beyond the
// timeout of the run.
const (
	removeSlack  = time.Minute
	removeShare  = time.Second
	timeoutSlack = 10 * time.Second
)

// removal is a pod that the plan stops, and why that failed.
type removal struct {
	admit.Removal
	err     error
	elapsed time.Duration
}

// keepOthers calls stop, which may take as long as the grace periods of pods. If the run keeps its
// pods, those of the plan that run already are kept at their goal meanwhile, by a run of their own.
func (r *run) keepOthers(ctx context.Context, plan admit.Plan, stop func()) {
	if r.o.Keep == nil || len(plan.Removals()) == 0 {
		stop()
		return
	}
	var others []admit.Decision
	for _, d := range plan.Decisions {
		if d.Verdict == admit.Admitted && d.Running && !d.Prune && (len(d.DependsOn) == 0 || r.hasStarted(ctx, d)) {
			d.DependsOn = nil // what waits for others has to wait for the stops, too
			others = append(others, d)
		}
	}
	added := len(plan.Admitted()) - len(others)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	o := r.o
	o.Keep, o.Remove, o.Logs = stopped, RemoveNone, nil
	o.Concluded = func([]Result) {}
	o.Progress = func(e Progress) {
		r.mu.Lock()
		defer r.mu.Unlock()
		e.Total += added
		r.o.Progress(e)
	}
	newRun(r.rt, o).carryOut(ctx, others, plannedResults(others), nil)
	<-stopped
}

// stopDepartures stops the pods that are preempted, replaced or pruned, those that depend on others before
// these. Nothing is started before all of them have stopped, since the plan counts on what they hold: memory,
// ports, names. It returns, by row of the plan, why a pod cannot be started.
func (r *run) stopDepartures(ctx context.Context, plan admit.Plan, results []Result) map[int]error {
	all := plan.Removals()
	removals, pods := make([]*removal, len(all)), make([]*v1.Pod, len(all))
	for i := range all {
		removals[i], pods[i] = &removal{Removal: all[i]}, all[i].Pod
	}
	// They keep their grace period: a Stop with a deadline would shorten it.
	stop, cancel := withoutDeadline(ctx)
	defer cancel()
	InStopOrder(stop, pods, nil, func(ctx context.Context, i int) {
		d, remove := removals[i], r.rt.Stop
		if d.By != nil {
			r.recordDecision(plan.Decisions[d.Row])
		}
		if again := plan.Decisions[d.Row].Again(); again != nil && again.UID == d.Pod.UID {
			remove = r.reset
		}
		if d.err = r.stop(ctx, d.Pod, d.Why, remove); d.err != nil {
			d.err = fmt.Errorf("stopping pod %q, which is %s: %w", d.Pod.Name, d.Why, d.err)
		} else if d.By != nil {
			r.o.Meter.Preempted(d.Pod, plan.Decisions[d.Row].Lacked)
		}
		d.elapsed = time.Since(r.o.Start)
	})
	blocked := map[int]error{}
	for _, d := range removals {
		d.conclude(ctx, plan.Decisions, results, blocked)
	}
	preventOvercommit(plan, removals, blocked)
	return blocked
}

// withoutDeadline returns a context that is done when ctx is, but has no deadline.
func withoutDeadline(ctx context.Context) (context.Context, func()) {
	free, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return free, func() {
		stop()
		cancel(nil)
	}
}

// conclude sets the pod's result and blocks the pods that cannot start while it runs.
func (d *removal) conclude(ctx context.Context, ds []admit.Decision, results []Result, blocked map[int]error) {
	decision, res := ds[d.Row], &results[d.Row]
	res.Elapsed = max(res.Elapsed, d.elapsed)
	switch {
	case d.err != nil && len(decision.Replaces) > 0 && decision.Runs():
		blocked[d.Row] = errors.Join(blocked[d.Row], d.err)
	case d.err != nil:
		res.stopFailed(ctx, d.err)
	case decision.Prune:
		res.Outcome, res.Reason, res.Message = Succeeded, ReasonPruned, "stopped: the pod is no longer in the input"
	}
	if d.err == nil || decision.Verdict != admit.Preempted {
		return
	}
	for i := range ds {
		if samePod(ds[i].Pod, decision.By) {
			blocked[i] = d.err
		}
	}
}

// stopFailed is for a pod that was not stopped, or was not started because of one.
func (res *Result) stopFailed(ctx context.Context, err error) {
	res.Outcome, res.Reason, res.Message = Failed, "StopFailed", err.Error()
	if isStoppedByOther(err) {
		res.Reason = reasonStopped
	}
	if ctx.Err() != nil {
		res.Outcome = interrupted(context.Cause(ctx))
	}
}

func samePod(a, b *v1.Pod) bool {
	return a != nil && b != nil && a.UID == b.UID && a.Name == b.Name && a.Namespace == b.Namespace
}

// remove removes what this run has started and does not keep, even if the run was interrupted for the given
// cause, pods that depend on others before these.
func (r *run) remove(ctx context.Context, cause error) {
	var started []*pod
	var pods []*v1.Pod
	for _, p := range r.pods {
		if p.begun() && !p.res.Existed && r.o.Remove.Includes(p.res.Outcome) {
			started, pods = append(started, p), append(pods, p.pod)
		}
	}
	InStopOrder(context.WithoutCancel(ctx), pods, CriticalLast(), func(ctx context.Context, i int) {
		p := started[i]
		ctx, cancel := context.WithTimeout(ctx, r.removeLimit(p.pod, cause))
		defer cancel()
		if err := r.stop(ctx, p.pod, "the run removes its pods", r.rt.Stop); err != nil {
			p.res.RemoveError = err.Error()
		}
	})
}

// removeLimit is how long removing the pod may take: its grace period and a little more, but not
// much longer than the timeout of the run. A user who has interrupted the run can do so again.
func (r *run) removeLimit(pod *v1.Pod, cause error) time.Duration {
	limit := podspec.GracePeriod(pod) + removeSlack + time.Duration(len(r.pods))*removeShare
	if r.o.Timeout == 0 || cause != nil && interrupted(cause) == Canceled && !isFailFast(cause) {
		return limit
	}
	return min(limit, max(0, time.Until(r.o.Start.Add(r.o.Timeout)))+timeoutSlack)
}

// stop stops a pod with the given function of the runtime, and reports that.
func (r *run) stop(ctx context.Context, pod *v1.Pod, why string, remove func(context.Context, *v1.Pod) error) error {
	r.progress(Stopping(ctx, pod, why), 0)
	err := remove(ctx, pod)
	r.progress(Stopped(ctx, pod, err), 0)
	return err
}

// Stopping is the event of a pod that is being stopped.
func Stopping(ctx context.Context, pod *v1.Pod, why string) Progress {
	e := Progress{Pod: pod, State: "Stopping", Message: why}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < podspec.GracePeriod(pod) {
		e.Within = max(time.Until(end), time.Second)
	}
	return e
}

// Stopped is the event of a pod that was stopped, or was not because of the error.
func Stopped(ctx context.Context, pod *v1.Pod, err error) Progress {
	if err == nil {
		return Progress{Pod: pod, State: "Stopped"}
	}
	message := err.Error()
	if ctx.Err() != nil { // which has caused all other errors
		message = context.Cause(ctx).Error()
		var e interface{ Left() string }
		if errors.As(err, &e) {
			message += "; " + e.Left()
		}
	}
	return Progress{Pod: pod, State: "StopFailed", Message: message}
}
