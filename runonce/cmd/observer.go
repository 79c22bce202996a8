package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/record"
)

var (
	_ runonce.Observer = (*nodeObserver)(nil)
	_ runonce.Observer = (*clusterObserver)(nil)
)

// recorded returns the records of pods, also of those that a run has admitted and not started yet.
func (t *nodeTarget) recorded() ([]*record.Pod, error) {
	all, err := record.Open(t.options.Root, t.options.State).List()
	if errors.Is(err, fs.ErrPermission) {
		return nil, unusable(needsRoot(t.command))
	}
	if err != nil {
		return nil, unusable(fmt.Errorf("listing pods: %w", err))
	}
	return slices.DeleteFunc(all, func(r *record.Pod) bool { return r.OtherVersion() || r.Removed }), nil
}

// known returns the pods of the records.
func (t *nodeTarget) known() ([]*v1.Pod, error) {
	all, err := t.recorded()
	pods := make([]*v1.Pod, 0, len(all))
	for _, r := range all {
		pods = append(pods, r.Pod)
	}
	return pods, err
}

// observe opens the engine, unless only the records matter.
func (t *nodeTarget) observe(ctx context.Context, _ func() []string, until runonce.Until) ([]*v1.Pod, runonce.Observer, error) {
	o := &nodeObserver{t: t, existence: until == runonce.UntilDeleted, started: map[types.UID]time.Time{}}
	if o.existence {
		t.records = record.Open(t.options.Root, t.options.State)
	} else if err := t.connect(ctx); err != nil {
		return nil, nil, err
	}
	all, err := t.recorded()
	pods := make([]*v1.Pod, 0, len(all))
	for _, r := range all {
		pods = append(pods, r.Pod)
		o.started[r.Pod.UID] = r.Started
	}
	return pods, o, err
}

// nodeObserver sees the pods of this machine.
type nodeObserver struct {
	t *nodeTarget
	// existence says that only it matters. started is when the pods were started that were there at the
	// beginning: one that was started again is another one.
	existence bool
	started   map[types.UID]time.Time
}

// Observe looks at the pod's record, and at its containers if that matters.
func (o *nodeObserver) Observe(ctx context.Context, pod *v1.Pod) (runonce.Observed, error) {
	var seen runonce.Observed
	r, err := o.t.records.Load(pod.UID)
	if errors.Is(err, fs.ErrNotExist) {
		return seen, nil
	}
	if err != nil {
		return seen, err
	}
	started := o.started[pod.UID]
	again := o.existence && !started.IsZero() && !started.Equal(r.Started)
	if by := o.t.records.PreemptedBy(r); by != nil {
		d := admit.PreemptedBy(pod, by)
		seen.Outcome, seen.Reason, seen.Message = runonce.Preempted, d.Reason, d.Message
	}
	if r.Removed || again || seen.Outcome == runonce.Preempted && !o.existence {
		return seen, nil
	}
	state, now := o.t.stateOf(r.Pod, r), *r.Pod
	if !o.existence {
		now.Status, err = o.t.pods.Look(ctx, r.Pod)
		if _, gone := o.t.records.Load(pod.UID); errors.Is(gone, fs.ErrNotExist) {
			return seen, nil // it was removed meanwhile: its containers say nothing
		}
	}
	return runonce.Observed{
		Pod: &now, Managed: state.Watched, Undecided: o.t.records.IsWatched(r) && state.Outcome == "",
		Outcome: state.Outcome, Reason: state.Reason, Message: state.Message,
	}, err
}

// Totals returns what the pod's containers have used, unless only its existence matters.
func (o *nodeObserver) Totals(ctx context.Context, pod *v1.Pod) map[string]podusage.Total {
	if o.existence {
		return nil
	}
	return o.t.pods.Totals(ctx, pod)
}

// Changes looks for a change of the record and of who owns the pod, besides what happens to the containers.
func (o *nodeObserver) Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error) {
	var containers <-chan struct{}
	if !o.existence {
		var err error
		if containers, err = o.t.pods.Changes(ctx, pod); err != nil {
			return nil, err
		}
	}
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		ticker := time.NewTicker(machinePeriod)
		defer ticker.Stop()
		last, managed := o.recorded(pod)
		for {
			select {
			case _, open := <-containers:
				if !open {
					return
				}
			case <-ticker.C:
				r, m := o.recorded(pod)
				if r == last && m == managed {
					continue
				}
				last, managed = r, m
			case <-ctx.Done():
				return
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}

// recorded returns the record of the pod, which is the same as before if it has not changed, and whether a run of it
// goes on.
func (o *nodeObserver) recorded(pod *v1.Pod) (*record.Pod, bool) {
	r, err := o.t.records.Load(pod.UID)
	if err != nil {
		return nil, false
	}
	return r, o.t.records.IsWatched(r)
}

func (t *clusterTarget) observe(ctx context.Context, namespaces func() []string, _ runonce.Until) ([]*v1.Pod, runonce.Observer, error) {
	pods, err := t.list(ctx, namespaces)
	if err != nil {
		return nil, nil, err
	}
	o := &clusterObserver{t: t, uids: map[types.NamespacedName]types.UID{}}
	for _, pod := range pods {
		if _, uid, err := t.pods.Look(podspec.NameOf(pod)); err == nil {
			o.uids[podspec.NameOf(pod)] = uid
		}
	}
	return pods, o, nil
}

// clusterObserver sees the pods of a cluster, whose kubelets start and restart the containers.
type clusterObserver struct {
	t *clusterTarget
	// uids are those that the cluster has given to the pods that were there at the beginning. One of the same
	// name with another UID is another pod.
	uids map[types.NamespacedName]types.UID
}

// Observe returns the pod as of the last event of the watch.
func (o *clusterObserver) Observe(_ context.Context, pod *v1.Pod) (runonce.Observed, error) {
	name := podspec.NameOf(pod)
	now, uid, err := o.t.pods.Look(name)
	if err != nil || uid != o.uids[name] {
		return runonce.Observed{Managed: true}, err
	}
	return runonce.Observed{Pod: now, Managed: true}, nil
}

// Changes is that of the pods.
func (o *clusterObserver) Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error) {
	return o.t.pods.Changes(ctx, pod)
}
