package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

// SyncError holds what went wrong in one Sync, in the order of the spec. Its first permanent
// error speaks for it, else its first error.
type SyncError struct {
	Errors []*failure.Error
}

// relist is how soon the kubelet notices that a container has ended (genericPlegRelistPeriod of
// pkg/kubelet).
const relist = time.Second

// containerError is what SyncError holds for a container. One that has ended without having run is no
// error to be retried: the next Sync goes by its restart policy.
func containerError(name, reason string, err error) *failure.Error {
	e := &failure.Error{Why: reason, Err: fmt.Errorf("container %q: %s: %w", name, reason, err)}
	if failure.IsRefused(err) && !failure.IsPermanent(err) {
		e.Wait = relist
	}
	return e
}

func (e *SyncError) Error() string {
	texts := make([]string, 0, len(e.Errors))
	for _, err := range e.Errors {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors.
func (e *SyncError) Unwrap() []error {
	errs := make([]error, 0, len(e.Errors))
	for _, err := range e.Errors {
		errs = append(errs, err)
	}
	return errs
}

func (e *SyncError) lead() *failure.Error {
	for _, err := range e.Errors {
		if err.Permanent() {
			return err
		}
	}
	for _, err := range e.Errors {
		if err.RetryAfter() == 0 {
			return err
		}
	}
	return e.Errors[0]
}

// Reason returns the reason of the error that speaks for all.
func (e *SyncError) Reason() string { return e.lead().Reason() }

// Permanent says whether there is an error that no retry can help.
func (e *SyncError) Permanent() bool { return e.lead().Permanent() }

// RetryAfter returns the shortest wait when every error asks for one, else 0: an error
// without a wait of its own is retried on the caller's schedule.
func (e *SyncError) RetryAfter() time.Duration {
	shortest := e.Errors[0].RetryAfter()
	for _, err := range e.Errors[1:] {
		shortest = min(shortest, err.RetryAfter())
	}
	return shortest
}

// RetryDelay returns the longest wait that an error asks for.
func (e *SyncError) RetryDelay() time.Duration {
	var longest time.Duration
	for _, err := range e.Errors {
		longest = max(longest, failure.RetryDelay(err))
	}
	return longest
}

// recordFailures records why the pod's containers wait. What was cut off says nothing about
// the pod.
func (p *Pods) recordFailures(ctx context.Context, w *work, failures map[string]record.Failure) {
	if ctx.Err() != nil || maps.Equal(w.record.Failures, failures) {
		return
	}
	known, err := p.o.Records.Update(w.pod.UID, func(r *record.Pod) error { r.Failures = failures; return nil })
	if err == nil {
		w.record = known
	} else if !errors.Is(err, fs.ErrNotExist) {
		p.o.Log.WarnContext(ctx, "could not record why the pod is waiting", "pod", w.pod.Namespace+"/"+w.pod.Name, "error", err)
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
	if ctx.Err() == nil {
		p.failureEvent(w.pod, "", reason, err)
	}
	return &SyncError{[]*failure.Error{{Why: reason, Err: fmt.Errorf("%s: %w", reason, err)}}}
}

// recordFailedStart records that the instance has ended without having run, if it has: the OCI runtime has
// refused it, or no retry can change the cause.
func (p *Pods) recordFailedStart(pod *v1.Pod, next podstate.Start, cfg engine.ContainerConfig, cause error) (recorded bool, err error) {
	if !failure.IsRefused(cause) && !failure.IsPermanent(cause) || failure.Reason(cause, "") != failure.ReasonRunError {
		return false, nil
	}
	now := time.Now()
	err = p.update(pod, func(r *record.Pod) {
		if r.FailedStarts == nil {
			r.FailedStarts = map[string]engine.Container{}
		}
		r.FailedStarts[cfg.Name] = engine.Container{
			ID: cfg.ID, PodUID: cfg.PodUID, Name: cfg.Name, Attempt: cfg.Attempt, Image: cfg.Image,
			LogPath: cfg.LogPath, Labels: cfg.Labels, State: engine.StateExited, CreatedAt: now, StartedAt: now, Last: next.Last,
			Exit: engine.Exit{
				ExitCode: podstate.StartErrorExitCode, Reason: podstate.ReasonStartError, Message: failure.WithAdvice(cause).Error(), StartedAt: now, FinishedAt: now,
			},
		}
	})
	return err == nil, err
}

// failureEvent reports why a container, or what the pod needs before its containers, could not be
// started. The container may be "", and reason is that of the status.
func (p *Pods) failureEvent(pod *v1.Pod, container, reason string, err error) {
	byReason := map[string]string{
		failure.ReasonFailedMount: failure.ReasonFailedMount, podstate.ReasonSandboxError: eventFailedSandbox,
		podstate.ReasonPostStartHook: eventFailedPostStartHook,
	}
	if known, ok := byReason[reason]; ok {
		p.events.add(pod, container, known, "%v", err)
		return
	}
	if def := podspec.Container(pod, container); def != nil && reason == failure.ReasonErrImagePull {
		p.events.add(pod, container, eventFailed, "Failed to pull image %q: %v", def.Image, err)
		p.events.add(pod, container, eventFailed, "Error: %s", reason)
		return
	}
	p.events.add(pod, container, eventFailed, "Error: %s: %v", reason, err)
}

// probeEvents reports the probes that have failed since the status before.
func (p *Pods) probeEvents(pod *v1.Pod, container string, before, now probe.Status) {
	for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
		if a, ok := now.Last[kind]; ok && a.Result != probe.Success && a != before.Last[kind] {
			p.events.add(pod, container, eventUnhealthy, "%s", podstate.ProbeFailure(kind, a))
		}
	}
}
