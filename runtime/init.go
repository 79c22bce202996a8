package runtime

import (
	"slices"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
)

// decideInit looks at the init containers from last to first: the newest one that has an
// instance in this sandbox tells where the pod stands, since earlier ones may have been removed. Of those
// before it only sidecars matter: they are kept running.
func decideInit(pod *v1.Pod, s snapshot, a *actions, now time.Time) (initialized, failed bool) {
	inits := pod.Spec.InitContainers
	w := initWalk{pod: pod, s: s, a: a, now: now, past: s.anyActive(pod.Spec.Containers)}
	w.done = w.past || len(inits) == 0
	for i := len(inits) - 1; i >= 0 && !w.failed; i-- {
		c, ok := s.active(inits[i].Name)
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
	slices.Reverse(a.start)
	slices.Reverse(a.wait)
	return w.done, w.failed
}

// initWalk goes through the init containers of a pod, the last one first.
type initWalk struct {
	pod    *v1.Pod
	s      snapshot
	a      *actions
	now    time.Time
	past   bool // a later init container, or a container of the pod, was started before
	done   bool // the containers of the pod may run
	failed bool // they never will
}

func (w *initWalk) schedule(i int) { w.a.schedule(w.s, &w.pod.Spec.InitContainers[i], w.now) }

// next goes on to what follows the init container, unless that was reached before.
func (w *initWalk) next(i int) {
	switch {
	case w.past:
	case i == len(w.pod.Spec.InitContainers)-1:
		w.done = true
	default:
		w.schedule(i + 1)
	}
}

func (w *initWalk) plain(i int, c engine.Container) {
	switch {
	case c.State == engine.StateRunning:
	case c.State == engine.StateCreated:
		w.schedule(i)
	case c.State == engine.StateExited && c.Exit.ExitCode == 0:
		w.next(i)
	case restarts(w.pod, &w.pod.Spec.InitContainers[i], c):
		w.schedule(i)
	default:
		w.failed = true
	}
}

// sidecar handles an init container with restartPolicy Always: it counts as done as soon
// as it has started, and is restarted whatever becomes of it.
func (w *initWalk) sidecar(i int, c engine.Container) {
	def := &w.pod.Spec.InitContainers[i]
	if c.State != engine.StateRunning {
		w.schedule(i)
		return
	}
	p := w.s.probes[c.ID]
	switch {
	case p.Failed != "":
		w.a.kill = append(w.a.kill, c)
		w.a.again(w.s, def, w.now)
	case imageChanged(c, def):
		w.a.restart(w.s, def, c)
	}
	if def.StartupProbe == nil || p.Started {
		w.next(i)
	}
}
