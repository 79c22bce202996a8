package runonce_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
)

// script is the behavior of one pod of the fake runtime.
type script struct {
	sync        func(n int) error // the n-th Sync, from 1
	syncTakes   time.Duration
	interrupted error    // of a Sync that is interrupted; nil is that of the context
	timeline    []moment // after the first Sync without an error
	afterStop   []moment // its timeline after a Stop, if not the same
	before      *v1.PodStatus
	status      func(n int) error // the n-th Status, from 1
	stop        func(n int) error
	stopTakes   time.Duration
	noEvents    bool // Changes fails
}

// moment is a status of the pod, from a time on.
type moment struct {
	at     time.Duration
	status v1.PodStatus
}

// fake is a Runtime whose pods follow scripts. It is deterministic in a synctest bubble.
type fake struct {
	mu      sync.Mutex
	scripts map[string]script
	pods    map[types.UID]*fakePod
	calls   []string               // "sync web", "stop web", "stopped web"
	began   map[time.Time][]string // the pods whose Sync began then
	busy    int
	most    int // syncs at once
	earlier []*v1.Pod
}

type fakePod struct {
	syncs, statusCalls, stops int
	startedAt                 time.Time
	failed                    *v1.PodStatus
	subs                      []chan struct{}
}

func (f *fake) of(pod *v1.Pod) (*fakePod, script) {
	if f.pods == nil {
		f.pods = map[types.UID]*fakePod{}
	}
	p, ok := f.pods[pod.UID]
	if !ok {
		p = &fakePod{}
		f.pods[pod.UID] = p
	}
	return p, f.scripts[pod.Name]
}

func (f *fake) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fake) Sync(ctx context.Context, pod *v1.Pod) error {
	f.mu.Lock()
	p, s := f.of(pod)
	p.syncs++
	n := p.syncs
	f.note("sync %s", pod.Name)
	if f.began == nil {
		f.began = map[time.Time][]string{}
	}
	f.began[time.Now()] = append(f.began[time.Now()], pod.Name)
	f.busy++
	f.most = max(f.most, f.busy)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy--
	}()
	if s.syncTakes > 0 {
		select {
		case <-time.After(s.syncTakes):
		case <-ctx.Done():
			return cmp.Or(s.interrupted, ctx.Err())
		}
	}
	if s.sync != nil {
		if err := s.sync(n); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.startedAt.IsZero() {
		p.startedAt = time.Now()
		for _, m := range s.timeline {
			if m.at > 0 {
				time.AfterFunc(m.at, func() { f.notify(p) })
			}
		}
	}
	return nil
}

func (f *fake) notify(p *fakePod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ch := range p.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (f *fake) Status(_ context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, s := f.of(pod)
	timeline := s.timeline
	if p.stops > 0 && s.afterStop != nil {
		timeline = s.afterStop
	}
	p.statusCalls++
	if s.status != nil {
		if err := s.status(p.statusCalls); err != nil {
			return v1.PodStatus{}, err
		}
	}
	st := v1.PodStatus{Phase: v1.PodPending}
	if s.before != nil {
		st = *s.before
	}
	if p.startedAt.IsZero() {
		if p.failed != nil {
			return *p.failed, nil
		}
		return st, nil
	}
	for _, m := range timeline {
		if time.Since(p.startedAt) >= m.at {
			st = m.status
		}
	}
	if p.failed != nil {
		st.Phase, st.Reason, st.Message = p.failed.Phase, p.failed.Reason, p.failed.Message
	}
	stamp(&st, p.startedAt)
	return st, nil
}

// stamp sets the start of running containers.
func stamp(st *v1.PodStatus, startedAt time.Time) {
	st.ContainerStatuses = slices.Clone(st.ContainerStatuses)
	for i := range st.ContainerStatuses {
		if run := st.ContainerStatuses[i].State.Running; run != nil && run.StartedAt.IsZero() {
			st.ContainerStatuses[i].State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(startedAt)}
		}
	}
}

func (f *fake) Stop(ctx context.Context, pod *v1.Pod) error {
	f.mu.Lock()
	p, s := f.of(pod)
	p.stops++
	n := p.stops
	f.note("stop %s", pod.Name)
	f.mu.Unlock()
	if s.stopTakes > 0 {
		select {
		case <-time.After(s.stopTakes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.stop != nil {
		if err := s.stop(n); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p.startedAt, p.failed = time.Time{}, nil
	f.note("stopped %s", pod.Name)
	return nil
}

// Fail makes the pod Failed.
func (f *fake) Fail(_ context.Context, pod *v1.Pod, reason, message string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, _ := f.of(pod)
	f.note("fail %s", pod.Name)
	p.failed = &v1.PodStatus{Phase: v1.PodFailed, Reason: reason, Message: message}
	return nil
}

func (f *fake) List(context.Context) ([]*v1.Pod, error) { return f.earlier, nil }

func (f *fake) Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, s := f.of(pod)
	if s.noEvents {
		return nil, fmt.Errorf("no events")
	}
	ch := make(chan struct{}, 1)
	p.subs = append(p.subs, ch)
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		p.subs = slices.DeleteFunc(p.subs, func(c chan struct{}) bool { return c == ch })
		close(ch)
	})
	return ch, nil
}

// syncError is an error with all methods that a Runtime's errors may have.
type syncError struct {
	text   string
	reason string
	perm   bool
	after  time.Duration
}

func (e syncError) Error() string             { return e.text }
func (e syncError) Permanent() bool           { return e.perm }
func (e syncError) RetryAfter() time.Duration { return e.after }
func (e syncError) Reason() string            { return e.reason }

// newPod returns a pod with one container "c" and the given policy.
func newPod(name string, policy v1.RestartPolicy) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{RestartPolicy: policy, Containers: []v1.Container{{Name: "c", Image: "app:1"}}},
	}
}

func admitted(pods ...*v1.Pod) admit.Plan {
	var plan admit.Plan
	for _, p := range pods {
		plan.Decisions = append(plan.Decisions, admit.Decision{Pod: p, Verdict: admit.Admitted})
	}
	return plan
}

func with(phase v1.PodPhase, cs ...v1.ContainerStatus) v1.PodStatus {
	st := v1.PodStatus{Phase: phase, ContainerStatuses: cs}
	ready := len(cs) > 0
	for _, c := range cs {
		ready = ready && c.Ready
	}
	if ready {
		st.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	}
	return st
}

func up() v1.ContainerStatus {
	return v1.ContainerStatus{Name: "c", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func unready() v1.ContainerStatus {
	cs := up()
	cs.Ready = false
	return cs
}

func ended(code int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}}
}

func waiting(reason string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
}

// crashed is a container in its back-off after n restarts.
func crashed(n int32) v1.ContainerStatus {
	cs := waiting("CrashLoopBackOff")
	cs.RestartCount = n
	cs.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 1}
	return cs
}

func restarted(cs v1.ContainerStatus, n int32) v1.ContainerStatus {
	cs.RestartCount = n
	return cs
}

func running() v1.PodStatus { return with(v1.PodRunning, up()) }

func runs() script { return script{timeline: []moment{{0, running()}}} }

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
