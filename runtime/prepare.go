package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/host"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// prepareStep is one part of what a pod needs before its containers.
type prepareStep struct {
	name   string
	reason string // of an error that has none
	do     func(ctx context.Context, pod *v1.Pod) error
	undo   func(ctx context.Context, pod *v1.Pod) error // called when a later step fails; may be nil
}

// prepare makes what the containers need: record, volumes, cgroup, sandbox, and the files that
// every container mounts. It is safe to repeat.
func (p *Pods) prepare(ctx context.Context, w *work) error {
	connected := false
	sandbox := func(ctx context.Context, pod *v1.Pod) (err error) {
		w.sandbox, err = p.o.Sandboxes.Ensure(ctx, pod, w.lock)
		connected = err == nil
		return err
	}
	disconnect := func(ctx context.Context, pod *v1.Pod) error {
		if !connected {
			return nil // Ensure has undone what it could: a plugin that hangs is not called again
		}
		return p.o.Sandboxes.Remove(ctx, pod, w.lock)
	}
	steps := []prepareStep{
		{"record", podstate.ReasonSandboxError, func(ctx context.Context, pod *v1.Pod) (err error) {
			w.record, err = p.recordStart(ctx, pod)
			return err
		}, nil},
		{"volumes", failure.ReasonFailedMount, p.o.Volumes.Setup, p.o.Volumes.Teardown},
		{"cgroup", podstate.ReasonSandboxError, func(ctx context.Context, pod *v1.Pod) error {
			_, err := p.o.Cgroups.Ensure(ctx, pod)
			return err
		}, p.o.Cgroups.Remove},
		{"sandbox", podstate.ReasonSandboxError, sandbox, disconnect},
	}
	if podstate.SharesProcesses(w.pod) {
		ensure := func(ctx context.Context, _ *v1.Pod) error { return p.ensurePause(ctx, w) }
		steps = append(steps, prepareStep{"processes", podstate.ReasonSandboxError, ensure, p.removePause})
	}
	write := func(_ context.Context, pod *v1.Pod) error { return p.writeFiles(pod, w.sandbox) }
	steps = append(steps, prepareStep{"files", podstate.ReasonSandboxError, write, nil})
	if err := p.run(ctx, w, steps); err != nil {
		return err
	}
	p.remember(w.pod.UID, func(m *memory) { m.prepared, m.annotations = true, w.sandbox.Annotations })
	return nil
}

// run does the steps in order. After an error it undoes them in reverse, also when ctx is
// done, unless the pod already has containers, since they need what was made. The record is
// not undone: by it the pod is found again.
func (p *Pods) run(ctx context.Context, w *work, steps []prepareStep) error {
	for i, s := range steps {
		err := p.o.traced(w.pod.UID, s.name, func() error { return s.do(ctx, w.pod) })
		if err == nil {
			continue
		}
		if w.fresh {
			err = errors.Join(err, undo(ctx, w.pod, steps[:i+1]))
		}
		return &failure.Error{Why: failure.Reason(err, s.reason), Err: fmt.Errorf("preparing the %s of pod %q: %w", s.name, w.pod.Name, err)}
	}
	return nil
}

// undo undoes the steps, the last one first.
func undo(ctx context.Context, pod *v1.Pod, steps []prepareStep) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var errs []error
	for _, s := range slices.Backward(steps) {
		if s.undo != nil {
			errs = append(errs, s.undo(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

// recordStart records when the pod was first started, before anything of it exists, and the
// devices that its containers will have, of which no other pod that has not ended has any.
func (p *Pods) recordStart(ctx context.Context, pod *v1.Pod) (*record.Pod, error) {
	if known, err := p.o.Records.Load(pod.UID); err == nil && !known.Started.IsZero() {
		return known, nil
	}
	kinds := p.o.Devices.Kinds()
	start := func(r *record.Pod) {
		r.Start(pod)
		p.o.Records.Tie(r)
		r.Node, r.Runtime = p.o.Node.Name, p.o.Runtime
	}
	if !host.Requests(pod, kinds) {
		return p.o.Records.Update(pod.UID, func(r *record.Pod) error { start(r); return nil })
	}
	ended, err := p.endedPods(ctx)
	if err != nil {
		return nil, fmt.Errorf("choosing devices: %w", err)
	}
	return p.o.Records.UpdateAmong(pod.UID, func(r *record.Pod, others []*record.Pod) (err error) {
		if r.Devices, err = host.Allocate(pod, kinds, devicesInUse(others, ended)); err != nil {
			return fmt.Errorf("choosing devices: %w", err)
		}
		start(r)
		return nil
	})
}

// endedPods returns which of the pods with devices have ended and so no longer need them.
func (p *Pods) endedPods(ctx context.Context) (map[types.UID]bool, error) {
	known, err := p.o.Records.List()
	if err != nil {
		return nil, err
	}
	ended := map[types.UID]bool{}
	for _, r := range known {
		if len(r.Devices) == 0 {
			continue
		}
		s, err := p.Status(ctx, r.Pod)
		if err != nil {
			return nil, err
		}
		ended[r.Pod.UID] = podspec.Inactive(s)
	}
	return ended, nil
}

func devicesInUse(pods []*record.Pod, ended map[types.UID]bool) map[string]bool {
	used := map[string]bool{}
	for _, r := range pods {
		for _, names := range r.Devices {
			for _, name := range names {
				used[name] = used[name] || !ended[r.Pod.UID]
			}
		}
	}
	return used
}
