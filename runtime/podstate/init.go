package podstate

import (
	"fmt"
	"slices"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// decideInit goes through the init containers from last to first: the last one that has an
// instance in this sandbox determines how far the pod is, since earlier ones may have been
// removed. Of those before it only sidecars matter: they are kept running.
func (o *Observation) decideInit(a *Actions, now time.Time) (initialized, failed bool) {
	inits := o.Pod.Spec.InitContainers
	w := initWalk{o: o, a: a, now: now, past: o.anyActive(o.Pod.Spec.Containers)}
	w.done = w.past || len(inits) == 0
	for i := len(inits) - 1; i >= 0 && !w.failed; i-- {
		c, ok := o.active(inits[i].Name)
		switch {
		case !ok && w.past && podspec.IsSidecar(&inits[i]):
			w.schedule(i)
		case !ok || (w.past && !podspec.IsSidecar(&inits[i])):
		case podspec.IsSidecar(&inits[i]):
			w.sidecar(i, c)
			w.past = true
		default:
			w.plain(i, c)
			w.past = true
		}
	}
	if !w.past && !w.done {
		w.schedule(0)
	}
	slices.Reverse(a.PostStart)
	slices.Reverse(a.Start)
	slices.Reverse(a.Wait)
	return w.done, w.failed
}

// initWalk is the state of decideInit.
type initWalk struct {
	o      *Observation
	a      *Actions
	now    time.Time
	past   bool // a later init container, or a container of the pod, was started before
	done   bool // the containers of the pod may run
	failed bool // they never will
}

func (w *initWalk) schedule(i int) { w.o.schedule(&w.o.Pod.Spec.InitContainers[i], w.a, w.now) }

// next schedules what follows the init container, unless that was reached before.
func (w *initWalk) next(i int) {
	switch {
	case w.past:
	case i == len(w.o.Pod.Spec.InitContainers)-1:
		w.done = true
	default:
		w.schedule(i + 1)
	}
}

func (w *initWalk) plain(i int, c engine.Container) {
	def := &w.o.Pod.Spec.InitContainers[i]
	switch {
	case c.State == engine.StateRunning:
	case succeeded(w.o.Pod, def, c):
		w.next(i)
	case w.o.restarts(def, c):
		w.schedule(i)
	default:
		w.failed = true
	}
}

// sidecar handles an init container with restartPolicy Always: it is done as soon as it has
// started, and is always restarted.
func (w *initWalk) sidecar(i int, c engine.Container) {
	def := &w.o.Pod.Spec.InitContainers[i]
	if c.State != engine.StateRunning {
		w.schedule(i)
		return
	}
	p, hooked := w.o.Probes[c.ID], w.o.Record.AwaitsPostStart(def, c.ID)
	switch {
	case p.Failed != "":
		w.a.Kill = append(w.a.Kill, Kill{c, w.o.probeGrace(def, c), "Init container " + w.o.failedProbe(c)})
		w.o.restartAfterProbe(def, w.a, w.now)
	case changed(c, def):
		w.o.restart(def, w.a, c, fmt.Sprintf("Init container %s definition changed", def.Name))
	case hooked:
		w.a.PostStart = append(w.a.PostStart, c)
	}
	if !hooked && (p.Started || w.o.Record.HasStartedUp(def, c.ID)) {
		w.next(i)
	}
}
