package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
)

// resetFile holds the reset of a pod, beside its record.
const resetFile = "reset.json"

// reset tells which instances of a pod's containers do not count: those from before the
// newest sandbox, after which the init containers run again, or those that were ended to
// start the whole pod anew. The kubelet finds the former by their sandbox and removes the
// latter; here both stay until the next instance runs, so that how they ended is known.
type reset struct {
	// Before is the last instance of each container that is from before the sandbox, or gone.
	Before map[string]int `json:"before"`
	// Gone is the last that was ended by the action RestartAllContainers.
	Gone map[string]int `json:"gone,omitempty"`
}

// before says that the instance tells nothing of what was done in the present sandbox.
func (r reset) before(c engine.Container) bool { return within(r.Before, c) }

// gone says that the instance counts as removed.
func (r reset) gone(c engine.Container) bool { return within(r.Gone, c) }

func within(last map[string]int, c engine.Container) bool {
	n, ok := last[c.Name]
	return ok && c.Attempt <= n
}

// resettable says whether the pod can have a reset at all.
func resettable(pod *v1.Pod) bool { return len(pod.Spec.InitContainers) > 0 || couldRestartAll(pod) }

// couldRestartAll says whether a rule of the pod has the action RestartAllContainers
// (podutil.AllContainersCouldRestart).
func couldRestartAll(pod *v1.Pod) bool {
	return slices.ContainsFunc(podspec.Containers(pod), func(c *v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// restartsAll says whether a container has ended in a way that restarts all containers of
// the pod (pkg/kubelet/container.ShouldAllContainersRestart).
func (s snapshot) restartsAll(pod *v1.Pod) bool {
	return slices.ContainsFunc(podspec.Containers(pod), func(def *v1.Container) bool {
		c, ok := s.containers[def.Name]
		if !ok || c.State != engine.StateExited || s.reset.gone(c) {
			return false
		}
		action, _ := podspec.RestartRule(def, c.Exit.ExitCode)
		return action == v1.ContainerRestartRuleActionRestartAllContainers
	})
}

// wasReset returns what is known of the pod's last reset.
func (st *podState) wasReset(s store, pod *v1.Pod) reset {
	if !resettable(pod) {
		return reset{}
	}
	st.memo.Lock()
	defer st.memo.Unlock()
	if st.reset == nil {
		r, err := s.loadReset(pod)
		if err != nil {
			return reset{} // a pod that was never started, or whose record is torn: nothing is known
		}
		st.reset = &r
	}
	return *st.reset
}

// startAnew makes all instances of now count no more: as gone, or as from before the sandbox
// that is about to be made.
func (st *podState) startAnew(s store, pod *v1.Pod, now map[string]engine.Container, gone bool) error {
	r := reset{Before: make(map[string]int, len(now)), Gone: st.wasReset(s, pod).Gone}
	for name, c := range now {
		r.Before[name] = c.Attempt
	}
	if gone {
		r.Gone = r.Before
	}
	if err := s.keep(pod.UID, resetFile, r); err != nil {
		return fmt.Errorf("noting that pod %q starts anew: %w", pod.Name, err)
	}
	st.memo.Lock()
	defer st.memo.Unlock()
	st.reset = &r
	if gone {
		clear(st.waiting)
	}
	return nil
}

func (s store) loadReset(pod *v1.Pod) (reset, error) {
	var r reset
	if err := s.recall(pod.UID, resetFile, &r); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return reset{}, err
	}
	return r, nil
}

// endAll ends the containers that run, without their hooks and at once but for the least
// grace, so that all start anew: init containers, sidecars and the others. Volumes and the
// sandbox stay. It returns the pod as it is then.
func (p *Pods) endAll(ctx context.Context, pod *v1.Pod, st *podState, s snapshot) (snapshot, error) {
	running := make([]engine.Container, 0, len(s.containers))
	for _, c := range s.containers {
		running = append(running, c)
	}
	if err := p.killAll(ctx, pod, running, func(engine.Container) time.Duration { return 0 }); err != nil {
		return s, err
	}
	if err := st.startAnew(p.store, pod, s.containers, true); err != nil {
		return s, err
	}
	_, s, err := p.snapshot(ctx, pod, st)
	return s, err
}
