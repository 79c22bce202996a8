package runtime

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// recordFailures records what could not be started, and forgets what now has been: tried
// names the containers. What was cut off says nothing about the pod.
func (p *Pods) recordFailures(ctx context.Context, w *work, tried []string, failed map[string]record.Failure) {
	if ctx.Err() != nil {
		return
	}
	now := maps.Clone(w.record.Failures)
	if now == nil {
		now = map[string]record.Failure{}
	}
	for _, name := range tried {
		delete(now, name)
	}
	maps.Copy(now, failed)
	if maps.Equal(w.record.Failures, now) {
		return
	}
	_, err := p.o.Records.Update(w.pod.UID, func(r *record.Pod) error {
		r.Failures = now
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.o.Log.WarnContext(ctx, "other processes will not know why the pod waits", "pod", w.pod.Namespace+"/"+w.pod.Name, "error", err)
	}
}

// recordPodFailure records that the pod could not be prepared for its containers.
func (p *Pods) recordPodFailure(ctx context.Context, w *work, err error) {
	var failed *SyncError
	if errors.As(err, &failed) {
		lead := failed.lead()
		p.recordFailures(ctx, w, nil, map[string]record.Failure{record.PodFailure: {Reason: lead.Why, Message: lead.Err.Error()}})
	}
}

// recordFailedStart records that the instance could not be started, when no retry can change
// that.
func (p *Pods) recordFailedStart(w *work, next podstate.Start, cfg engine.ContainerConfig, cause error) error {
	if !failure.IsPermanent(cause) || failure.Reason(cause, "") != failure.ReasonRunError {
		return nil
	}
	now := time.Now()
	_, err := p.o.Records.Update(w.pod.UID, func(r *record.Pod) error {
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
		return nil
	})
	return err
}
