package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Reasons of pods and containers that the status of a pod depends on.
const (
	reasonCompleted       = "Completed"
	reasonPodInitializing = "PodInitializing"
	reasonNodeLost        = "NodeLost" // NodeUnreachablePodReason of pkg/util/node
)

// podConditions are those of the row of a pod, by which clients tell that it has ended.
func podConditions(phase v1.PodPhase) []metav1.TableRowCondition {
	message := map[v1.PodPhase]string{
		v1.PodSucceeded: "The pod has completed successfully.",
		v1.PodFailed:    "The pod failed.",
	}[phase]
	if message == "" {
		return nil
	}
	return []metav1.TableRowCondition{
		{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(phase), Message: message},
	}
}

// podCells follows printPod.
func podCells(pod *v1.Pod, now time.Time) []any {
	s := summarize(pod)
	var ip string
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name,
		fmt.Sprintf("%d/%d", s.ready, len(podspec.LongRunning(pod))),
		s.status,
		s.restarts.text(now),
		age(pod, now),
		cmp.Or(ip, none),
		cmp.Or(pod.Spec.NodeName, none),
		cmp.Or(pod.Status.NominatedNodeName, none),
		readinessGates(pod),
	}
}

// summary is what the containers of a pod, and what others have said about it, amount to.
type summary struct {
	status   string
	ready    int // containers and sidecars
	restarts restarts
}

// restarts are how often containers were restarted, and when the last of them had ended before.
type restarts struct {
	count int
	last  time.Time
}

func (r *restarts) add(cs v1.ContainerStatus) {
	r.count += int(cs.RestartCount)
	if t := cs.LastTerminationState.Terminated; t != nil && r.last.Before(t.FinishedAt.Time) {
		r.last = t.FinishedAt.Time
	}
}

func (r *restarts) text(now time.Time) string {
	if r.count == 0 || r.last.IsZero() {
		return strconv.Itoa(r.count)
	}
	return fmt.Sprintf("%d (%s ago)", r.count, since(r.last, now))
}

func summarize(pod *v1.Pod) summary {
	s := summary{status: cmp.Or(pod.Status.Reason, string(pod.Status.Phase))}
	if podspec.Condition(pod.Status, v1.PodScheduled).Reason == v1.PodReasonSchedulingGated {
		s.status = v1.PodReasonSchedulingGated
	}
	sidecars, initialized := s.addInits(pod)
	if initialized || podspec.Condition(pod.Status, v1.PodInitialized).Status == v1.ConditionTrue {
		// The restarts of other init containers no longer matter.
		s.restarts = sidecars
		s.addContainers(pod.Status)
	}
	switch {
	case pod.DeletionTimestamp == nil:
	case pod.Status.Reason == reasonNodeLost:
		s.status = "Unknown"
	case !podspec.Ended(pod.Status.Phase):
		s.status = "Terminating"
	}
	return s
}

// addInits adds the init containers up to the one for which the pod waits; if it waits for none, it is initialized.
// It also returns the restarts of only the sidecars.
func (s *summary) addInits(pod *v1.Pod) (sidecars restarts, initialized bool) {
	for i, cs := range pod.Status.InitContainerStatuses {
		sidecar := slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool {
			return c.Name == cs.Name && podspec.IsSidecar(&c)
		})
		s.restarts.add(cs)
		if sidecar {
			sidecars.add(cs)
		}
		end := cs.State.Terminated
		switch {
		case end != nil && end.ExitCode == 0:
		case sidecar && cs.Started != nil && *cs.Started:
			if cs.Ready {
				s.ready++
			}
		default:
			s.status = "Init:" + initStatus(cs.State, i, len(pod.Spec.InitContainers))
			return sidecars, false
		}
	}
	return sidecars, true
}

// initStatus says why an init container keeps the pod from going on. If it just runs, or waits for its turn, that is
// how many came before it.
func initStatus(state v1.ContainerState, before, all int) string {
	switch w := state.Waiting; {
	case state.Terminated != nil:
		return endStatus(state.Terminated)
	case w != nil && w.Reason != "" && w.Reason != reasonPodInitializing:
		return w.Reason
	}
	return fmt.Sprintf("%d/%d", before, all)
}

// endStatus says how a container has ended.
func endStatus(end *v1.ContainerStateTerminated) string {
	switch {
	case end.Reason != "":
		return end.Reason
	case end.Signal != 0:
		return fmt.Sprintf("Signal:%d", end.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", end.ExitCode)
}

// addContainers adds the containers. The first one that has something to say has the last word about the status.
func (s *summary) addContainers(st v1.PodStatus) {
	runs, failure := false, ""
	for _, cs := range slices.Backward(st.ContainerStatuses) {
		s.restarts.add(cs)
		wait, end := cs.State.Waiting, cs.State.Terminated
		switch {
		case wait != nil && wait.Reason != "":
			s.status = wait.Reason
		case end != nil:
			s.status = endStatus(end)
			if end.ExitCode != 0 {
				failure = s.status
			}
		case cs.Ready && cs.State.Running != nil:
			runs = true
			s.ready++
		}
	}
	if s.status == reasonCompleted {
		s.status = completed(runs, podspec.IsReady(st), failure)
	}
}

// completed is the status of a pod of which a container has completed, while others may run or have failed.
func completed(runs, ready bool, failure string) string {
	switch {
	case runs && ready:
		return string(v1.PodRunning)
	case failure != "":
		return failure
	case runs:
		return "NotReady"
	}
	return reasonCompleted
}

// readinessGates says how many of the conditions on which the pod's readiness depends are true.
func readinessGates(pod *v1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return none
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if podspec.Condition(pod.Status, gate.ConditionType).Status == v1.ConditionTrue {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}
