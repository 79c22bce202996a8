package report

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce"
)

// The exit codes of the program. They are a promise to scripts.
const (
	ExitOK       = 0 // every pod reached its goal
	ExitFailed   = 1 // at least one pod failed, timed out or was invalid, or could not be removed
	ExitUsage    = 2 // bad usage, bad manifests or no pod: nothing was started
	ExitRejected = 3 // nothing failed, but a pod was rejected or preempted
	ExitEngine   = 4 // the node or the container engine cannot be used
	exitSignal   = 128
)

// ExitSignal returns the exit code of a run that the signal interrupted: 130 for SIGINT,
// 143 for SIGTERM.
func ExitSignal(sig syscall.Signal) int { return exitSignal + int(sig) }

// ExitCode returns the exit code for the results. A pod that was canceled makes it that
// of the signal, SIGINT when there was none; a failure counts for more than a rejection.
// An invalid pod, which is a row only because the user asked to go on without it, counts
// as a failure: it did not come to its goal.
func ExitCode(results []runonce.Result, sig syscall.Signal) int {
	if sig == 0 {
		sig = syscall.SIGINT
	}
	code := ExitOK
	for _, r := range results {
		switch r.Outcome {
		case runonce.Canceled:
			return ExitSignal(sig)
		case runonce.Failed, runonce.TimedOut, runonce.Invalid:
			code = ExitFailed
		case runonce.Rejected, runonce.Preempted:
			if code == ExitOK {
				code = ExitRejected
			}
		case runonce.Running, runonce.Ready, runonce.Succeeded:
		}
		if r.RemoveError != "" {
			code = ExitFailed
		}
	}
	return code
}

// ExitCodeFrom returns the exit code of one container of a finished run. ref is
// [NAMESPACE/]POD[/CONTAINER]: two parts are a pod and its container when there is such
// a pod, and else a namespace and a pod. Without a container it is the pod's first that
// failed, or its first. It is an error when there is no such container, or when it has
// not ended.
func ExitCodeFrom(results []runonce.Result, ref string) (int, error) {
	r, container, err := resolve(results, ref)
	if err != nil {
		return 0, err
	}
	var found *runonce.Container
	for i := range r.Containers {
		c := &r.Containers[i]
		regular := slices.ContainsFunc(r.Pod.Spec.Containers, func(s v1.Container) bool { return s.Name == c.Name })
		switch {
		case container != "" && c.Name == container:
			found = c
		case container != "" || !regular:
		case found == nil, c.ExitCode != nil && *c.ExitCode != 0 && (found.ExitCode == nil || *found.ExitCode == 0):
			found = c
		}
	}
	switch {
	case found == nil && container != "":
		return 0, fmt.Errorf("exit code from %q: pod %q has no container %q", ref, r.Pod.Name, container)
	case found == nil:
		return 0, fmt.Errorf("exit code from %q: the pod was not started (%s)", ref, r.Outcome)
	case found.ExitCode == nil:
		return 0, fmt.Errorf("exit code from %q: container %q has not ended", ref, found.Name)
	}
	return int(*found.ExitCode), nil
}

// resolve finds the pod, and the container's name, that ref speaks of.
func resolve(results []runonce.Result, ref string) (*runonce.Result, string, error) {
	parts := strings.Split(ref, "/")
	find := func(namespace, name string) *runonce.Result {
		for i := range results {
			p := results[i].Pod
			if p != nil && p.Name == name && (namespace == "" || p.Namespace == namespace) {
				return &results[i]
			}
		}
		return nil
	}
	switch len(parts) {
	case 1:
		if r := find("", parts[0]); r != nil {
			return r, "", nil
		}
	case 2:
		if r := find("", parts[0]); r != nil {
			return r, parts[1], nil
		}
		if r := find(parts[0], parts[1]); r != nil {
			return r, "", nil
		}
	case 3:
		if r := find(parts[0], parts[1]); r != nil {
			return r, parts[2], nil
		}
	}
	return nil, "", fmt.Errorf("exit code from %q: no such pod in this run", ref)
}
