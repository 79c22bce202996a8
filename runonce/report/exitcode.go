package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// The exit codes of the program. Scripts rely on them.
const (
	ExitOK       = 0 // every pod reached its goal
	ExitFailed   = 1 // a pod failed, timed out, was invalid or could not be removed
	ExitUsage    = 2 // invalid usage, invalid manifests or no pod: nothing was started
	ExitRejected = 3 // nothing failed, but a pod was rejected or preempted
	ExitEngine   = 4 // the node or the container engine cannot be used
	exitSignal   = 128
)

// ExitSignal returns the exit code of a run that was interrupted by the signal: 129 for SIGHUP,
// 130 for SIGINT, 143 for SIGTERM.
func ExitSignal(sig syscall.Signal) int { return exitSignal + int(sig) }

// ExitCode returns the exit code for the results. A canceled pod makes it that of the signal,
// SIGINT if there was none, unless the failure of another pod ended the run, or the pod depended on another
// one, whose outcome then counts for it. A failure takes precedence over a rejection. Removed pods do not count,
// nor do optional ones, unless the run was interrupted before they were done or could not remove them. An
// invalid pod, which is a result only if the user asked to continue without it, counts as a failure.
func ExitCode(results []runonce.Result, sig syscall.Signal) int {
	code := ExitOK
	for i := range results {
		r := &results[i]
		switch own := ownExitCode(r); {
		case r.IsInterrupted():
			return ExitSignal(cmp.Or(sig, syscall.SIGINT))
		case r.RemoveError != "", own == ExitFailed:
			code = ExitFailed
		case code == ExitOK:
			code = own
		}
	}
	return code
}

// ownExitCode returns the exit code for one result of a run that was not interrupted.
func ownExitCode(r *runonce.Result) int {
	outcome := r.Outcome
	if r.IsDependent() {
		outcome = r.Cause
	}
	switch {
	case podspec.IsOptional(r.Pod):
		return ExitOK
	case slices.Contains([]runonce.Outcome{runonce.Failed, runonce.TimedOut, runonce.Invalid}, outcome):
		return ExitFailed
	case outcome == runonce.Rejected || outcome == runonce.Preempted:
		return ExitRejected
	}
	return ExitOK
}

// ExitCodeFrom returns the exit code of one container of a finished run. ref is
// [NAMESPACE/]POD[/CONTAINER]; of two parts the first is a pod if there is one of that name, else
// a namespace. Without a container it is the pod's first one that failed, or else its first. It
// is an error if there is no such container, or if it has not ended: one that was restarted and runs
// has not. So is the 0 of a container that was told to end with its pod, or was OOM-killed if the pod
// has failed.
func ExitCodeFrom(results []runonce.Result, ref string) (int, error) {
	at, container := find(podsOf(results), ref)
	if at < 0 {
		return 0, fmt.Errorf("exit code from %q: no such pod in this run", ref)
	}
	r := results[at]
	found := containerOf(r, container)
	switch {
	case found == nil && container != "":
		return 0, fmt.Errorf("exit code from %q: pod %q has no container %q", ref, r.Pod.Name, container)
	case found == nil:
		return 0, fmt.Errorf("exit code from %q: the pod was not started (%s)", ref, r.Outcome)
	case !ended(found):
		return 0, fmt.Errorf("exit code from %q: container %q has not exited", ref, found.Name)
	case *found.ExitCode == 0 && wasEnded(r):
		return 0, fmt.Errorf("exit code from %q: the pod was stopped (%s)", ref, r.Reason)
	case *found.ExitCode == 0 && found.EndedBadly() && r.Outcome == runonce.Failed:
		return 0, fmt.Errorf("exit code from %q: container %q was OOM-killed but exited with 0", ref, found.Name)
	}
	return int(*found.ExitCode), nil
}

// containerOf returns the container of the result with the name, or without one the first regular
// container that failed, or else the first.
func containerOf(r runonce.Result, container string) (found *runonce.Container) {
	for i := range r.Containers {
		c := &r.Containers[i]
		regular := slices.ContainsFunc(r.Pod.Spec.Containers, func(s v1.Container) bool { return s.Name == c.Name })
		switch {
		case container != "" && c.Name == container:
			found = c
		case container != "" || !regular:
		case found == nil, ended(c) && *c.ExitCode != 0 && (!ended(found) || *found.ExitCode == 0):
			found = c
		}
	}
	return found
}

// wasEnded reports whether a pod was ended by something else than its containers: its deadline, an
// eviction, a preemption, or somebody who has stopped it.
func wasEnded(r runonce.Result) bool {
	return r.Outcome == runonce.Preempted || r.Outcome == runonce.Failed && r.Status.Reason != ""
}

// ended says whether the container has an exit code, and not that of an instance before the running
// one.
func ended(c *runonce.Container) bool { return c.ExitCode != nil && c.State != "Running" }

func podsOf(results []runonce.Result) []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(results))
	for _, r := range results {
		pods = append(pods, r.Pod)
	}
	return pods
}

// ExitCodeSource returns the pod that ExitCodeFrom takes the exit code from in a run of the pods, and
// the container if ref names one. It is an error if there is none. Pods without containers are
// invalid and may have any.
func ExitCodeSource(pods []*v1.Pod, ref string) (pod *v1.Pod, container string, err error) {
	at, container := find(pods, ref)
	if at < 0 {
		return nil, "", fmt.Errorf("no pod %q in the input", ref)
	}
	pod = pods[at]
	if container != "" && len(pod.Spec.Containers) > 0 && podspec.Container(pod, container) == nil {
		return nil, "", fmt.Errorf("pod %q has no container %q", pod.Name, container)
	}
	return pod, container, nil
}

// find returns the index of the pod that ref names, -1 for none, and the name of the container if
// it has one.
func find(pods []*v1.Pod, ref string) (int, string) {
	type target struct{ namespace, pod, container string }
	var targets []target
	switch parts := strings.Split(ref, "/"); len(parts) {
	case 1:
		targets = []target{{"", parts[0], ""}}
	case 2:
		targets = []target{{"", parts[0], parts[1]}, {parts[0], parts[1], ""}}
	case 3:
		targets = []target{{parts[0], parts[1], parts[2]}}
	}
	for _, t := range targets {
		for i, p := range pods {
			if p != nil && p.Name == t.pod && (t.namespace == "" || p.Namespace == t.namespace) {
				return i, t.container
			}
		}
	}
	return -1, ""
}
