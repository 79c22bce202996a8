package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/events"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/podstate"
)

// The kubelet's reasons of events (pkg/kubelet/events), and OOMKilling, which is that of the node problem detector.
const (
	eventPulling             = "Pulling"
	eventPulled              = "Pulled"
	eventCreated             = "Created"
	eventStarted             = "Started"
	eventKilling             = "Killing"
	eventFailed              = "Failed"
	eventBackOff             = "BackOff"
	eventUnhealthy           = "Unhealthy"
	eventSandboxChanged      = "SandboxChanged"
	eventDeadlineExceeded    = "DeadlineExceeded"
	eventOOMKilling          = "OOMKilling"
	eventFailedSandbox       = "FailedCreatePodSandBox"
	eventFailedPostStartHook = "FailedPostStartHook"
	eventFailedPreStopHook   = "FailedPreStopHook"
)

// typeOf returns the type of the events that the kubelet gives a reason.
func typeOf(reason string) string {
	switch reason {
	case eventPulling, eventPulled, eventCreated, eventStarted, eventKilling, eventSandboxChanged, eventDeadlineExceeded:
		return v1.EventTypeNormal
	}
	return v1.EventTypeWarning
}

// recorder keeps the events of pods, and reports them to whoever else wants them. What it cannot keep is lost: no pod
// depends on it. It is safe for concurrent use.
type recorder struct {
	store  logs.Store
	log    *slog.Logger
	report func(*v1.Pod, podevent.Event)

	mu sync.Mutex
	// pending are the events of a pod that is about to start, by UID, which are written with those that follow within
	// moments: a file is opened once for all of them.
	pending map[types.UID]*pendingEvents
}

type pendingEvents struct {
	pod *v1.Pod
	all []podevent.Event
}

func newRecorder(store logs.Store, o *Options) *recorder {
	r := &recorder{store: store, log: o.Log, report: o.Event, pending: map[types.UID]*pendingEvents{}}
	if r.report == nil {
		r.report = func(*v1.Pod, podevent.Event) {}
	}
	return r
}

// add records what happens to the pod now, in the kubelet's words. The container may be "".
func (r *recorder) add(pod *v1.Pod, container, reason, format string, args ...any) {
	r.keep(pod, podevent.New(typeOf(reason), reason, container, fmt.Sprintf(format, args...)))
}

// keep records an event. Those of a start are not written before flush, or the next event of another kind.
func (r *recorder) keep(pod *v1.Pod, e podevent.Event) {
	r.report(pod, e)
	if pod.UID == "" {
		return // a list of images, which is no pod
	}
	r.mu.Lock()
	known := r.pending[pod.UID]
	if known == nil {
		known = &pendingEvents{pod: pod}
		r.pending[pod.UID] = known
	}
	known.all = append(known.all, e)
	r.mu.Unlock()
	switch e.Reason {
	case podevent.ReasonScheduled, eventPulled, eventCreated, eventStarted:
		return
	}
	r.flush(pod.UID)
}

// flush writes the events of the pod that are not written yet.
func (r *recorder) flush(uid types.UID) {
	r.mu.Lock()
	known := r.pending[uid]
	delete(r.pending, uid)
	r.mu.Unlock()
	if known != nil {
		r.write(known.pod, known.all)
	}
}

// flushAll writes all events that are not written yet.
func (r *recorder) flushAll() {
	r.mu.Lock()
	uids := slices.Collect(maps.Keys(r.pending))
	r.mu.Unlock()
	for _, uid := range uids {
		r.flush(uid)
	}
}

func (r *recorder) write(pod *v1.Pod, all []podevent.Event) {
	of := logsOf(pod)
	path := r.store.EventsPath(of)
	err := events.Append(path, all...)
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.store.MakeDir(of, LogMark(pod)); err == nil {
			err = events.Append(path, all...)
		}
	}
	if err != nil {
		r.log.Debug("could not record events of the pod", "pod", podspec.FullName(pod), "error", err)
	}
}

// read returns the events of the pod, in the order in which they have happened last.
func (r *recorder) read(pod *v1.Pod) ([]podevent.Event, error) {
	r.flush(pod.UID)
	return events.Read(r.store.EventsPath(logsOf(pod)))
}

// explain records what the pod was found to be, as far as the kubelet has events for that, before anything is done
// about it.
func (p *Pods) explain(obs *podstate.Observation, todo podstate.Actions) {
	pod := obs.Pod
	for _, def := range podspec.AllContainers(pod) {
		if c := obs.Containers[def.Name]; c.State == engine.StateExited && c.Exit.OOMKilled {
			p.oomEvent(pod, def, c)
		}
	}
	if todo.CreateSandbox && len(obs.Containers) > 0 { // kuberuntime's SyncPod
		p.events.add(pod, "", eventSandboxChanged, "Pod sandbox changed, it will be killed and re-created.")
	}
	if obs.Record.Failed == nil && obs.Overdue(time.Now()) && len(todo.Kill) > 0 { // pkg/kubelet/active_deadline.go
		p.events.add(pod, "", eventDeadlineExceeded, "Pod was active on the node longer than the specified deadline")
	}
}

// oomEvent records that the instance of a container was OOM-killed, unless this is known, from another process
// perhaps.
func (p *Pods) oomEvent(pod *v1.Pod, def *v1.Container, c engine.Container) {
	known := false
	p.remember(pod.UID, func(m *memory) {
		known = m.oomKilled[def.Name] == c.ID
		m.oomKilled[def.Name] = c.ID
	})
	if known {
		return
	}
	e := podevent.At(c.Exit.FinishedAt, podevent.Event{
		Type: v1.EventTypeWarning, Reason: eventOOMKilling, Container: def.Name,
		Message: fmt.Sprintf("Container %s ran out of memory; a process of it was killed", def.Name),
	})
	all, err := p.events.read(pod)
	same := func(o podevent.Event) bool {
		return o.Reason == e.Reason && o.Container == e.Container && !o.LastSeen.Before(e.LastSeen)
	}
	if err == nil && !slices.ContainsFunc(all, same) {
		p.events.keep(pod, e)
	}
}

// Record keeps an event of the pod that others than the runtime have caused.
func (p *Pods) Record(pod *v1.Pod, e podevent.Event) { p.events.keep(pod, e) }

// Events returns the events of the pod, each with how often it has happened, in the order in which they have happened
// last. They are kept as long as its logs, also when it was removed.
func (p *Pods) Events(_ context.Context, pod *v1.Pod) ([]podevent.Event, error) {
	return p.events.read(pod)
}
