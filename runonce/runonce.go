// Package runonce turns a plan into results: order, concurrency, retry and back-off,
// deadlines. It decides when a pod is done; how a pod is run is its Runtime's business.
package runonce

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Runtime runs pods on this node. It is safe for concurrent use by different pods.
//
// Errors speak by behaviour: one with Permanent() bool that returns true ends the pod at
// once; one with RetryAfter() time.Duration asks not to be called again before then
// (a container's crash back-off, say); one with PreemptedBy() *v1.Pod that is not nil says
// that another run has stopped the pod for that one; all others are transient.
type Runtime interface {
	// Sync brings the pod nearer to what its spec asks for; it is safe to repeat.
	Sync(ctx context.Context, pod *v1.Pod) error
	// Status returns the pod's status. A pod that is absent is Pending, nil.
	Status(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error)
	// Stop ends the pod gracefully and removes all that belongs to it but its logs. A pod
	// that is absent is no error.
	Stop(ctx context.Context, pod *v1.Pod) error
	// Fail ends the pod's containers gracefully and for good: its status is Failed from
	// now on, with the reason and message given. Stop removes what is left.
	Fail(ctx context.Context, pod *v1.Pod, reason, message string) error
	// List returns the pods of earlier runs, with their status filled in.
	List(ctx context.Context) ([]*v1.Pod, error)
	// Changes returns a channel that gets a value when a container of the pod starts,
	// exits or turns ready; values coalesce. It is closed when ctx is done.
	Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error)
}

// Annotator is a Runtime that annotates pods: with the network status of Multus, say. The
// annotations go into the results.
type Annotator interface {
	Annotations(ctx context.Context, pod *v1.Pod) map[string]string
}

// Outcome is how a pod has ended, or where it stands at the end of a run.
type Outcome string

// The outcomes of a pod.
const (
	Running   Outcome = "Running"
	Ready     Outcome = "Ready"
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed"
	TimedOut  Outcome = "TimedOut"
	Rejected  Outcome = "Rejected"
	Preempted Outcome = "Preempted"
	Invalid   Outcome = "Invalid"
	Canceled  Outcome = "Canceled"
)

// Result is the outcome for one pod.
type Result struct {
	Pod        *v1.Pod
	Outcome    Outcome
	Reason     string
	Message    string
	Attempts   int           // tries to bring the pod up: the first, retries after an error, restarts
	Restarts   int           // container restarts, all containers together
	Elapsed    time.Duration // since the start of the run, until the outcome stood
	Phases     []Phase
	Containers []Container
	Status     v1.PodStatus
	// Annotations are what the runtime has noted on the pod.
	Annotations map[string]string
	// By is the pod that preempted this one.
	By *v1.Pod
	// RemoveError says why the pod could not be removed although that was asked for.
	RemoveError string
}

// Phase is one step of a pod's start, for the timeline.
type Phase struct {
	Name    string
	Start   time.Duration // since the start of the run
	Elapsed time.Duration
}

// Container is the state of one container of a pod.
type Container struct {
	Name     string
	Image    string
	State    string // Waiting, Running or Terminated
	ExitCode *int32 // of the current or last termination; nil when it never ended
	Restarts int
	LogPath  string
	LogTail  []string // last lines of a failed container's log
}
