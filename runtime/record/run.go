package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/flock"
)

// Files of runs, below the root: the lock for planning, which names the last run that has admitted pods,
// and a file for each run, which it keeps locked while it lives. What a killed run leaves is unlocked and
// does not count.
const (
	runsDir  = "runs"
	planLock = "plan.lock"
)

// Run is one run of the root, a process of its own. Runs plan one at a time, and count the pods
// that other living runs own. The methods of Run are not safe for concurrent use.
type Run struct {
	// Removes says, in the words of the run, which of the pods that it starts it removes at its end; "" for none. Cleanup is
	// what others do if it is killed, nil for nothing. Both must be set before Reserve.
	Removes string
	Cleanup *flock.Cleanup

	store *Store
	plan  *os.File // locked while it is this run's turn to plan
	alive *os.File // locked while this run lives
	pods  []types.UID
	// before is the run of this process before this one, which owns its pods if this one fails.
	before *identity
}

// NewRun returns a run that owns nothing yet.
func (s *Store) NewRun() *Run { return &Run{store: s} }

// Enter waits for this run's turn to plan, and removes what killed runs have left.
func (r *Run) Enter(ctx context.Context) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	if err := r.store.sweep(); err != nil {
		return errors.Join(fmt.Errorf("cleaning up after other runs: %w", err), r.Leave())
	}
	return nil
}

// take waits for the turn to plan.
func (r *Run) take(ctx context.Context) error {
	err := os.MkdirAll(r.store.runs(), 0o700)
	if err == nil {
		r.plan, err = flock.Acquire(ctx, filepath.Join(r.store.runs(), planLock), func(h flock.Holder) {
			r.store.notify("waiting for the run of %s to plan and to stop pods, which it has been doing since %s", h, h.Since.Format(time.DateTime))
		})
	}
	if err != nil {
		return fmt.Errorf("waiting for the turn to plan: %w", err)
	}
	return nil
}

// Resume waits for the turn of a run that has reserved pods to reserve more. It says whether another run has
// reserved some since this one did for the last time. Unlike Enter it takes no longer when there are more
// records.
func (r *Run) Resume(ctx context.Context) (others bool, err error) {
	if err := r.take(ctx); err != nil {
		return false, err
	}
	last, err := io.ReadAll(io.NewSectionReader(r.plan, 0, 1<<10))
	if err != nil {
		return false, errors.Join(fmt.Errorf("reading which run has admitted pods last: %w", err), r.Leave())
	}
	return string(last) != r.store.owner(), nil
}

// sign says that this run has admitted pods last, if it is its turn to plan.
func (r *Run) sign() error {
	if r.plan == nil {
		return nil
	}
	if err := r.plan.Truncate(0); err != nil {
		return err
	}
	_, err := r.plan.WriteAt([]byte(r.store.owner()), 0)
	return err
}

// Sweep removes what killed runs have left, unless a run is planning and so has done that.
func (r *Run) Sweep() error {
	f, err := flock.Try(filepath.Join(r.store.runs(), planLock))
	if errors.Is(err, fs.ErrNotExist) || (err == nil && f == nil) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cleaning up after other runs: %w", err)
	}
	return errors.Join(r.store.sweep(), f.Close())
}

// Leave lets the next run plan.
func (r *Run) Leave() error {
	if r.plan == nil {
		return nil
	}
	err := r.plan.Close()
	r.plan = nil
	return err
}

// Reserve makes this run an owner of the pods until Close: of those that it starts, and of
// those that run already. It must be this run's turn to plan. From then on, this is the run of
// the process, unless there is an error.
func (r *Run) Reserve(pods []*v1.Pod) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("recording the admitted pods: %w", err), r.Abandon())
		}
	}()
	r.before = r.store.run.Load()
	if r.alive, err = flock.CreateRun(r.store.runs(), r.Cleanup); err != nil {
		return err
	}
	r.store.run.Store(&identity{filepath.Base(r.alive.Name()), r.Removes})
	return r.reserve(pods)
}

// ReserveMore is Reserve for pods of a run that has reserved others, after Resume. After an error it is
// not known which of the pods the run owns.
func (r *Run) ReserveMore(pods []*v1.Pod) error {
	if err := r.reserve(pods); err != nil {
		return fmt.Errorf("recording the admitted pods: %w", err)
	}
	return nil
}

func (r *Run) reserve(pods []*v1.Pod) error {
	if err := r.sign(); err != nil {
		return err
	}
	for _, pod := range pods {
		r.pods = append(r.pods, pod.UID)
	}
	var lasting []*Pod
	err := r.store.locked(func() error {
		for _, pod := range pods {
			now, lasts, err := r.store.update(pod.UID, func(p *Pod) error { r.own(p, pod); return nil })
			if err != nil {
				return err
			}
			if lasts {
				lasting = append(lasting, now)
			}
		}
		return nil
	})
	for _, p := range lasting {
		err = errors.Join(err, r.store.sync(p))
	}
	return err
}

// own makes the run an owner of the pod.
func (r *Run) own(p *Pod, pod *v1.Pod) {
	p.admit(pod)
	p.adopt(pod)
	p.Outcome = nil // this run decides again
	maps.DeleteFunc(p.Owners, func(name string, _ Owner) bool { return !r.store.lives(name) })
	if p.Owners == nil {
		p.Owners = map[string]Owner{}
	}
	p.Owners[r.store.owner()] = Owner{}
}

// Reserved returns the pods that living runs of other processes own, in the order of List. Some of
// them may run already. What this process has promised before is not among them: it ends the run
// before it plans again, and so starts nothing that the next plan does not have. The result can change
// unless it is this run's turn to plan.
func (r *Run) Reserved() ([]*v1.Pod, error) {
	all, err := r.store.List()
	if err != nil {
		return nil, fmt.Errorf("reading which pods other runs have admitted: %w", err)
	}
	var pods []*v1.Pod
	for _, p := range all {
		for name, o := range p.Owners {
			if !o.Lost && name != r.store.owner() && r.store.lives(name) {
				pods = append(pods, p.Pod)
				break
			}
		}
	}
	return pods, nil
}

// Revoke tells the other runs that own the pod that they must not start it again. It must be
// called before the pod is stopped. by is the pod that preempts it, nil when none does.
func (r *Run) Revoke(pod, by *v1.Pod) error {
	if p, err := r.store.Load(pod.UID); err == nil && !r.store.ownedByOthers(p) {
		return nil // without a write, for which there may be no space
	}
	lost := Owner{Lost: true, Process: flock.Process(os.Getpid()).String()}
	if by != nil {
		lost.By = types.NamespacedName{Namespace: by.Namespace, Name: by.Name}
	}
	_, err := r.store.Update(pod.UID, func(p *Pod) error {
		for name := range p.Owners {
			if name != r.store.owner() {
				p.Owners[name] = lost
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("telling other runs that pod %q is stopped: %w", pod.Name, err)
	}
	return nil
}

// Close ends the run: it leaves, and removes the records of what it has not started. What it has not removed, although it
// would have, stays.
func (r *Run) Close() error {
	errs := []error{r.Leave()}
	if r.alive != nil {
		errs = append(errs, os.Remove(r.alive.Name()), r.alive.Close())
		r.alive = nil
		for _, uid := range r.pods {
			errs = append(errs, r.store.sweepPod(uid))
			if r.Removes != "" {
				errs = append(errs, r.store.Release(uid))
			}
		}
	}
	return errors.Join(errs...)
}

// Abandon is Close for a run whose plan is not carried out: the run before it of the same process
// goes on.
func (r *Run) Abandon() error {
	if r.alive != nil {
		r.store.run.Store(r.before)
	}
	return r.Close()
}

// LostError says that another process has stopped a pod of this run, which must not start it
// again.
type LostError struct {
	Pod     string
	By      types.NamespacedName // has preempted it; empty when it was stopped for another reason
	Process string               // that has stopped it, in words
}

func (e *LostError) Error() string {
	if e.By.Name != "" {
		return fmt.Sprintf("pod %q was preempted by %s, which another run has admitted", e.Pod, e.By)
	}
	return fmt.Sprintf("pod %q was stopped by %s", e.Pod, cmp.Or(e.Process, "another process"))
}

// Permanent is true: no retry brings the pod back.
func (e *LostError) Permanent() bool { return true }

// ReasonStopped is that of a pod that was stopped before its time.
const ReasonStopped = "Stopped"

// Reason is a single word.
func (e *LostError) Reason() string { return ReasonStopped }

// PreemptedBy returns the pod that has preempted this one, nil when none has.
func (e *LostError) PreemptedBy() *v1.Pod {
	if e.By.Name == "" {
		return nil
	}
	by := &v1.Pod{}
	by.Namespace, by.Name = e.By.Namespace, e.By.Name
	return by
}

// Owned returns a *LostError when another process has stopped a pod of this one's run. The
// caller holds the pod's lock.
func (s *Store) Owned(p *Pod) error {
	if o := p.Owners[s.owner()]; o.Lost {
		return &LostError{Pod: p.Pod.Name, By: o.By, Process: o.Process}
	}
	return nil
}

// lost reports whether another process has stopped a pod of this one's run.
func (s *Store) lost(p *Pod) bool { return p.Owners[s.owner()].Lost }

// owner is the name of this process's run, "" for none yet.
func (s *Store) owner() string {
	if run := s.run.Load(); run != nil {
		return run.name
	}
	return ""
}

func (s *Store) runs() string { return filepath.Join(s.root, runsDir) }

// lives reports whether the process of a run has not ended.
func (s *Store) lives(owner string) bool {
	held, err := flock.IsLocked(filepath.Join(s.runs(), owner))
	return err == nil && held
}

// ownedByOthers reports whether living runs of other processes own the pod.
func (s *Store) ownedByOthers(p *Pod) bool {
	for name := range p.Owners {
		if name != s.owner() && s.lives(name) {
			return true
		}
	}
	return false
}

// sweep removes what killed runs have left: their locks, unless they have something to remove, and the records of pods that
// they have not started. The caller holds the lock for planning.
func (s *Store) sweep() error {
	err := s.eachDead(func(path string, cleanup flock.Cleanup) error {
		if len(cleanup.Command) > 0 {
			return nil
		}
		return os.Remove(path)
	})
	if err != nil {
		return err
	}
	all, err := s.List()
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := s.sweepPod(p.Pod.UID); err != nil {
			return err
		}
	}
	return nil
}

// sweepPod removes the record of a pod that is not on the machine and that no run owns.
func (s *Store) sweepPod(uid types.UID) error {
	return s.locked(func() error {
		p, err := s.load(uid)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !p.Removed && !p.Started.IsZero() {
			return err
		}
		for name := range p.Owners {
			if s.lives(name) {
				return nil
			}
		}
		return s.forget(uid)
	})
}
