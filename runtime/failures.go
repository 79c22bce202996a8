package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// recordFailures records why the pod's containers wait. What was cut off says nothing about
// the pod.
func (p *Pods) recordFailures(ctx context.Context, w *work, failures map[string]record.Failure) {
	if ctx.Err() != nil || maps.Equal(w.record.Failures, failures) {
		return
	}
	err := p.update(w.pod, func(r *record.Pod) { r.Failures = failures })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.o.Log.WarnContext(ctx, "why the pod waits is not recorded", "pod", w.pod.Namespace+"/"+w.pod.Name, "error", err)
	}
}

// prepareError records that the pod could not be prepared for its containers, and returns
// that as the error of a Sync.
func (p *Pods) prepareError(ctx context.Context, w *work, err error) error {
	reason := failure.Reason(err, podstate.ReasonSandboxError)
	failures := map[string]record.Failure{}
	maps.Copy(failures, w.record.Failures)
	failures[record.PodFailure] = record.Failure{Reason: reason, Message: err.Error()}
	p.recordFailures(ctx, w, failures)
	return &SyncError{[]*failure.Error{{Why: reason, Err: fmt.Errorf("%s: %w", reason, err)}}}
}

// recordFailedStart records that the instance could not be started, when no retry can change
// that.
func (p *Pods) recordFailedStart(w *work, next podstate.Start, cfg engine.ContainerConfig, cause error) error {
	if !failure.IsPermanent(cause) || failure.Reason(cause, "") != failure.ReasonRunError {
		return nil
	}
	now := time.Now()
	return p.update(w.pod, func(r *record.Pod) {
		if r.FailedStarts == nil {
			r.FailedStarts = map[string]engine.Container{}
		}
		r.FailedStarts[cfg.Name] = engine.Container{
			ID: cfg.ID, PodUID: cfg.PodUID, Name: cfg.Name, Attempt: cfg.Attempt, Image: cfg.Image,
			Labels: cfg.Labels, State: engine.StateExited, CreatedAt: now, StartedAt: now, Last: next.Last,
			Exit: engine.Exit{
				ExitCode: podstate.StartErrorExitCode, Reason: podstate.ReasonStartError, Message: cause.Error(), StartedAt: now, FinishedAt: now,
			},
		}
	})
}
