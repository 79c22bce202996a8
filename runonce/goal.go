package runonce

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// Until is the goal of a run.
type Until = podspec.Until

// The goals.
const (
	UntilRunning   = podspec.UntilRunning
	UntilReady     = podspec.UntilReady
	UntilCompleted = podspec.UntilCompleted
)

// Await is a container that a run waits for until it has ended and is not restarted, or until the
// run has given its pod up, whatever the goal of the run is. Without a container, it is all regular
// ones of the pod.
type Await struct {
	Pod       types.NamespacedName
	Container string
}

// Check returns why the wait for a container of the pod would have no end: it is restarted however
// it ends, as often as maxRestarts says, or is a sidecar, which ends after such a container.
func (a Await) Check(pod *v1.Pod, maxRestarts int) error {
	if maxRestarts == 0 {
		return nil
	}
	names := a.containers(pod)
	for _, c := range podspec.LongRunning(pod) {
		switch {
		case !slices.Contains(names, c.Name):
		case podspec.IsSidecar(c):
			return Await{Pod: a.Pod}.Check(pod, maxRestarts)
		case podspec.IsEndless(pod, c):
			return fmt.Errorf("container %q of pod %q never finishes: it is restarted whenever it exits; set restartPolicy to Never or OnFailure", c.Name, pod.Name)
		}
	}
	return nil
}

// containers returns the names of the containers of the pod that must end.
func (a Await) containers(pod *v1.Pod) []string {
	switch {
	case a.Pod != podspec.NameOf(pod):
		return nil
	case a.Container != "":
		return []string{a.Container}
	}
	names := make([]string, 0, len(pod.Spec.Containers))
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}

// goal is what the run waits for.
type goal struct {
	until Until
	// settle is how long a container must have run to count as running, 0 if it counts at once.
	settle time.Duration
	// await are containers that must have ended as well.
	await []string
}

// raise makes it the goal to reach at least that.
func (g *goal) raise(until Until) {
	all := []Until{UntilRunning, UntilReady, UntilCompleted}
	if slices.Index(all, until) > slices.Index(all, g.until) {
		g.until = until
	}
}

// of returns the goal of one pod: UntilCompleted waits for the end of the pods that can end,
// and for the others to be ready.
func (g goal) of(pod *v1.Pod) Until {
	if g.until == UntilCompleted && podspec.Endless(pod) != nil {
		return UntilReady
	}
	return g.until
}
