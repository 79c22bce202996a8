package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/network/userns"
	"github.com/runonce/runonce/runtime/spec"
)

// cleanupTimeout bounds what is undone after a failure or an interruption.
const cleanupTimeout = 30 * time.Second

// Sync brings the pod nearer to its spec and returns when the containers that can be
// started now have been. It is safe to repeat, after a crash of the process too. Its
// error is a *SyncError when containers, or the ground that they stand on, are at fault.
func (p *Pods) Sync(ctx context.Context, pod *v1.Pod) error {
	st := p.of(pod.UID)
	st.mu.Lock()
	defer st.mu.Unlock()

	st.synced = true
	box, s, err := p.snapshot(ctx, pod, st)
	if err != nil {
		return err
	}
	a := p.decide(pod, st, s)
	if a.restartAll {
		if s, err = p.endAll(ctx, pod, st, s); err != nil {
			return err
		}
		a = p.decide(pod, st, s)
	}
	st.noteKilled(s.probes)
	if err := p.clear(ctx, pod, s, a); err != nil {
		return err
	}
	if err := p.noteEnds(ctx, pod, a); err != nil {
		return err
	}
	at := place{pod: pod, box: box, pidNS: pidNamespace(s.pause), st: st, fresh: len(s.containers) == 0}
	if a.createSandbox && resettable(pod) && !at.fresh {
		if err := st.startAnew(p.store, pod, s.containers, false); err != nil {
			return err
		}
	}
	if a.createSandbox || (len(a.start) > 0 && !st.prepared) {
		if at, err = p.prepare(ctx, at); err != nil {
			p.noteGround(ctx, pod, err)
			return err
		}
	}
	return errors.Join(p.startAll(ctx, at, a), p.watchProbes(ctx, at))
}

// decide is what to do: to end the pod when it has failed for good, or was active past its
// deadline, and else what its containers ask for.
func (p *Pods) decide(pod *v1.Pod, st *podState, s snapshot) actions {
	left, limited := st.deadline(p.store, pod)
	if st.recorded(p.store, pod).Phase == v1.PodFailed || (limited && left <= 0) {
		return actions{remove: s.stale, killPod: true}
	}
	if limited {
		st.wakeAt(left, func() { p.watch.notify(string(pod.UID)) })
	}
	return decide(pod, s, time.Now())
}

// snapshot looks at the pod as it is.
func (p *Pods) snapshot(ctx context.Context, pod *v1.Pod, st *podState) (network.Sandbox, snapshot, error) {
	var s snapshot
	var err error
	if s.containers, s.stale, err = p.instances(ctx, pod); err != nil {
		return network.Sandbox{}, s, err
	}
	s.reset = st.wasReset(p.store, pod)
	s.crashes = st.countCrashes(s.containers)
	s.probes = p.probes.of(pod.UID)
	box, err := p.o.Sandboxes.Get(ctx, pod)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return box, s, fmt.Errorf("looking at the sandbox of pod %q: %w", pod.Name, err)
	}
	s.sandbox = err == nil
	s.takePause(pod)
	return box, s, nil
}

// instances returns the newest instance of each container, with its termination message,
// and the IDs of all others.
func (p *Pods) instances(ctx context.Context, pod *v1.Pod) (map[string]engine.Container, []string, error) {
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		return nil, nil, fmt.Errorf("listing containers of pod %q: %w", pod.Name, err)
	}
	byName, stale := newest(pod, all)
	failed := p.of(pod.UID).failedStarts(p.store, pod.UID)
	for _, def := range podspec.Containers(pod) {
		c, ok := byName[def.Name]
		if f, is := failed[def.Name]; is && (!ok || c.Attempt < f.Attempt) {
			if ok {
				stale = append(stale, c.ID)
			}
			c, ok = f, true
			byName[def.Name] = c
		}
		if ok && c.State == engine.StateExited && c.Exit.Message == "" {
			c.Exit.Message = p.terminationMessage(pod, def, c)
			byName[def.Name] = c
		}
	}
	return byName, stale, nil
}

// newest picks the last instance of each container of the spec; the IDs of all others
// are stale.
func newest(pod *v1.Pod, all []engine.Container) (map[string]engine.Container, []string) {
	byName := make(map[string]engine.Container, len(all))
	var stale []string
	known := podspec.Containers(pod)
	for _, c := range all {
		old, seen := byName[c.Name]
		switch {
		case c.Name == pauseName && sharesProcesses(pod):
			byName[c.Name] = c
		case !slices.ContainsFunc(known, func(k *v1.Container) bool { return k.Name == c.Name }):
			stale = append(stale, c.ID)
		case seen && old.Attempt > c.Attempt:
			stale = append(stale, c.ID)
		default:
			if seen {
				stale = append(stale, old.ID)
			}
			byName[c.Name] = c
		}
	}
	return byName, stale
}

// clear stops and removes what stands in the way of the next steps.
func (p *Pods) clear(ctx context.Context, pod *v1.Pod, s snapshot, a actions) error {
	kill, grace := a.kill, s.probeGrace(pod)
	if a.killPod {
		kill, grace = nil, podGrace(pod)
		for _, c := range s.containers {
			kill = append(kill, c)
		}
	}
	if err := p.killAll(ctx, pod, kill, grace); err != nil {
		return err
	}
	for _, id := range a.remove {
		if err := p.o.Engine.Remove(ctx, id); err != nil {
			return fmt.Errorf("removing old container %q: %w", id, err)
		}
	}
	if !a.killPod {
		return nil
	}
	if err := p.removePause(ctx, pod); err != nil {
		return fmt.Errorf("removing the process namespace of pod %q: %w", pod.Name, err)
	}
	if err := p.o.Sandboxes.Remove(ctx, pod); err != nil {
		return fmt.Errorf("removing the sandbox of pod %q: %w", pod.Name, err)
	}
	return nil
}

// noteEnds fills in how the containers ended that were killed to be started anew, and
// counts these ends among the crashes, but for those within a back-off.
func (p *Pods) noteEnds(ctx context.Context, pod *v1.Pod, a actions) error {
	if len(a.kill) == 0 {
		return nil
	}
	now, _, err := p.instances(ctx, pod)
	if err != nil {
		return err
	}
	st := p.of(pod.UID)
	for _, next := range a.wait {
		if old, ok := now[next.container.Name]; ok && slices.ContainsFunc(a.kill, func(c engine.Container) bool { return c.ID == old.ID }) {
			st.countsNot(old)
		}
	}
	st.countCrashes(now)
	for i := range a.start {
		if old, ok := now[a.start[i].container.Name]; ok && old.ID == a.start[i].old {
			a.start[i].last = ended(old)
		}
	}
	return nil
}

// place is where the containers of one pod are started.
type place struct {
	pod *v1.Pod
	box network.Sandbox
	// pidNS is the path of the process namespace that the containers share, if they do.
	pidNS string
	st    *podState
	// fresh says that the pod has no containers yet, so that its ground may be undone.
	fresh bool
}

// sandbox is what the containers share.
func (at place) sandbox() spec.Sandbox {
	box := spec.Sandbox{
		NetNS: at.box.NetNS, IPCNS: at.box.IPCNS, UTSNS: at.box.UTSNS, UserNS: at.box.UserNS, PIDNS: at.pidNS,
		Hostname: at.box.Hostname, Domain: at.box.Domain, IPs: at.box.IPs,
	}
	if box.UserNS != "" {
		box.Users = []specs.LinuxIDMapping{{HostID: at.box.FirstID, Size: userns.Length}}
	}
	return box
}

// startAll starts the containers in spec order. One that fails does not keep the others
// from starting, as in kuberuntime's SyncPod.
func (p *Pods) startAll(ctx context.Context, at place, a actions) error {
	var faults []*ContainerError
	if len(a.start) > 0 {
		p.pullUnmounted(ctx, at)
	}
	done, failed := []string{ground}, map[string]startFailure{}
	for _, next := range a.start {
		done = append(done, next.container.Name)
		if err := p.startContainer(ctx, at, next); err != nil {
			fault := containerFault(next.container.Name, err)
			at.st.setWaiting(next.container.Name, waiting{fault.Why, fault.Err.Error()})
			faults = append(faults, fault)
			if ctx.Err() != nil {
				break
			}
			failed[next.container.Name] = startFailure{fault.Why, fault.Err.Error(), next.attempt}
			continue
		}
		at.st.clearWaiting(next.container.Name)
	}
	if len(a.start) > 0 {
		p.noteFailures(ctx, at.pod, done, failed)
	}
	for _, next := range a.wait {
		faults = append(faults, backOff(at, next))
	}
	return newSyncError(faults)
}

// containerFault makes err a fault of the container, if it is none yet.
func containerFault(name string, err error) *ContainerError {
	var fault *ContainerError
	if errors.As(err, &fault) {
		return fault
	}
	return &ContainerError{Container: name, Why: failure.Reason(err, ReasonCreateError), Err: err}
}

func backOff(at place, next start) *ContainerError {
	err := fmt.Errorf("back-off %s restarting failed container=%s pod=%s_%s(%s)", next.delay.Round(time.Second),
		next.container.Name, at.pod.Name, at.pod.Namespace, at.pod.UID)
	at.st.setWaiting(next.container.Name, waiting{ReasonCrashLoopBackOff, err.Error()})
	return &ContainerError{Container: next.container.Name, Why: ReasonCrashLoopBackOff, Err: err, Wait: next.delay}
}

// each runs f for every element at once and returns all errors.
func each[T any](elements []T, f func(T) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(elements))
	for i, e := range elements {
		wg.Go(func() { errs[i] = f(e) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
