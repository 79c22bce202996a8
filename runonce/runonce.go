// Package runonce carries a plan out: order, concurrency, retries and back-off, deadlines.
// It decides when a pod is done; its Runtime runs the pods.
package runonce

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
)

// Runtime runs pods on this node. It is safe for concurrent use by different pods.
//
// Its errors are told apart by their methods: Permanent() bool ends the pod at once if it
// returns true; RetryAfter() time.Duration asks not to be called again before then (because
// of a container's crash back-off, for example); Retries() int limits the number of retries;
// PreemptedBy() *v1.Pod, if not nil, names the pod of another run that this one was stopped
// for; Rejected() bool says that the pod was not accepted, and so did not fail. All other errors
// are transient.
type Runtime interface {
	// Sync brings the pod closer to what its spec asks for. It is idempotent.
	Sync(ctx context.Context, pod *v1.Pod) error
	// Status returns the pod's status. A pod that does not exist is Pending, without an error.
	Status(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error)
	// Stop ends the pod gracefully and removes everything of it except its logs. A pod that
	// does not exist is not an error. A deadline of ctx shortens the grace period.
	Stop(ctx context.Context, pod *v1.Pod) error
	// Fail ends the pod's containers gracefully and for good: its status is Failed from
	// now on, with the given reason and message. Stop removes the rest.
	Fail(ctx context.Context, pod *v1.Pod, reason, message string) error
	// List returns the pods of earlier runs, with their status.
	List(ctx context.Context) ([]*v1.Pod, error)
	// Changes returns a channel that gets a value when a container of the pod starts, exits
	// or becomes ready; values coalesce. It is closed when ctx is done.
	Changes(ctx context.Context, pod *v1.Pod) (<-chan struct{}, error)
}

// isRejected reports whether the error says that the pod was not accepted.
func isRejected(err error) bool {
	var r interface{ Rejected() bool }
	return errors.As(err, &r) && r.Rejected()
}

// isStoppedByOther reports whether the error says that another process has stopped the pod.
func isStoppedByOther(err error) bool {
	var p interface{ PreemptedBy() *v1.Pod }
	return errors.As(err, &p)
}

// preemptedBy returns the pod that the error names as the preemptor, nil for none.
func preemptedBy(err error) *v1.Pod {
	var p interface{ PreemptedBy() *v1.Pod }
	if errors.As(err, &p) {
		return p.PreemptedBy()
	}
	return nil
}

// Puller is a Runtime that can pull the images of a pod ahead of Sync.
type Puller interface {
	// MissingImages returns a function that pulls the images which the next Sync would have to
	// pull, nil if there are none. That Sync uses what the function has found, and its error
	// is the one of the pull.
	MissingImages(ctx context.Context, pod *v1.Pod) (pull func(ctx context.Context))
}

// Prefetcher is a Runtime that can pull the images of a pod which may not start yet.
type Prefetcher interface {
	// PullAhead pulls the images that the pod needs. The pod does not count as started, and what goes
	// wrong is left to its first Sync.
	PullAhead(ctx context.Context, pod *v1.Pod)
}

// Limiter is a Runtime that restarts containers only as often as the run says. Without it, as with the
// kubelets of a cluster, the run gives a pod up once a container has been restarted too often.
type Limiter interface {
	// LimitRestarts says how often each container of the pod may have been restarted in all, as its
	// status counts it, by its name; one without a number has no limit. Sync starts nothing of the
	// pod if a container would go beyond, and leaves that waiting.
	LimitRestarts(pod *v1.Pod, most map[string]int)
}

// Settler is a Runtime that knows when a pod needs no Sync.
type Settler interface {
	// Settled says whether Sync would do nothing, by what the last Status of the pod has found.
	Settled(pod *v1.Pod) bool
}

// Resetter is a Runtime whose pods other processes may stop.
type Resetter interface {
	// Reset is Stop for a pod that this run starts again. Its error says so if
	// another process has stopped the pod, which must not be started then.
	Reset(ctx context.Context, pod *v1.Pod) error
}

// Annotator is a Runtime that annotates pods, with the network status of Multus for example.
// The annotations are part of the results.
type Annotator interface {
	Annotations(ctx context.Context, pod *v1.Pod) map[string]string
}

// Digester is a Runtime that knows which images the references of its pods stand for.
type Digester interface {
	// Digests returns the digests of the images that containers of the pod were made from, by
	// container name.
	Digests(ctx context.Context, pod *v1.Pod) map[string]string
}

// Totaler is a Runtime, or an Observer, that knows what containers have used.
type Totaler interface {
	// Totals returns what the containers of the pod have used, by container name.
	Totals(ctx context.Context, pod *v1.Pod) map[string]podusage.Total
}

// Eventer is a Runtime that knows the events of its pods.
type Eventer interface {
	// Events returns the events of the pod, those that have happened last at the end.
	Events(ctx context.Context, pod *v1.Pod) ([]podevent.Event, error)
}

// Recorder is an Eventer that also keeps the events of pods that the run causes.
type Recorder interface {
	Eventer
	// Record keeps an event of the pod. It may be lost, and must not block.
	Record(pod *v1.Pod, e podevent.Event)
}

// Concluder is a Runtime that keeps for later commands what runs have decided about its pods.
type Concluder interface {
	// Conclude keeps the outcome of the pod; an empty one says that there is none yet. It has no
	// effect on the pod.
	Conclude(ctx context.Context, pod *v1.Pod, outcome, reason, message string) error
}

// Publisher is a Runtime whose pods others reach by name, and through Services.
type Publisher interface {
	// Publish has others reach the pod as its status says: by name if it has an address, through Services if it
	// is ready. When it returns, that is so. It is cheap if nothing has changed.
	Publish(ctx context.Context, pod *v1.Pod, st v1.PodStatus) error
}

// Refresher is a Runtime that knows its pods from elsewhere, such as a server that may stop to answer.
type Refresher interface {
	// Refresh brings up to date what Status returns. Its error says why it cannot, and since is when
	// that was the case for the last time.
	Refresh(ctx context.Context) (since time.Time, err error)
}

// Outcome is how a pod has ended, or its state at the end of a run.
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
	// Removed is a pod that another process has stopped while the run keeps its pods at their goal.
	// That was meant, so it is no failure.
	Removed Outcome = "Removed"
)

// AtGoal says whether the pod has reached its goal.
func (o Outcome) AtGoal() bool { return o == Running || o == Ready || o == Succeeded }

// ReasonFailFast is the reason of pods that had not reached their goal when the failure of another
// one ended the run.
const ReasonFailFast = "FailFast"

// ReasonRolledBack is the reason of pods whose former definition runs, since another one has failed.
const ReasonRolledBack = "RolledBack"

// reasonStopped is the reason of pods that another process has stopped.
const reasonStopped = "Stopped"

// reasonUnknown is the reason of a pod whose state is not known.
const reasonUnknown = "StatusUnknown"

// reasonSyncError is the reason of an error that has none.
const reasonSyncError = "SyncError"

// ReasonQueued is the reason of pods that wait until others have ended and given back what they had.
const ReasonQueued = admit.ReasonQueued

// ReasonPruned is the reason of pods that were stopped because they are no longer in the input.
const ReasonPruned = "Pruned"

// Result is the outcome for one pod.
type Result struct {
	Pod         *v1.Pod
	Outcome     Outcome
	Reason      string
	Message     string
	Attempts    int           // to start the pod in this run: the first one, retries after errors, restarts
	Restarts    int           // of all containers together
	Elapsed     time.Duration // from the start of the run to the outcome; 0 if it was there before
	EarlierRun  bool          // an earlier run has started all of the pod, this one nothing
	Existed     bool          // before this run
	Finished    time.Time     // when a pod of an earlier run ended, zero if it has not or that is unknown
	Phases      []Phase
	Containers  []Container
	Status      v1.PodStatus
	Annotations map[string]string // added by the runtime
	// Events are those of a pod that is not at its goal, or of any if Options ask for them, if the runtime knows them,
	// and EventLines the last ones of a pod that is not at its goal, as far as they say more than the rest, for people.
	Events      []podevent.Event
	EventLines  []string
	By          *v1.Pod // the pod that preempted this one
	Cause       Outcome // of the pod because of which this one, that depends on it, has not started
	RemoveError string  // why the pod could not be removed at the end of the run
}

// IsDependent says whether the pod was not started because of another one on which it depends.
func (r *Result) IsDependent() bool {
	return r.Outcome == Canceled && r.Reason == ReasonDependencyFailed
}

// IsInterrupted says whether the user has ended the run before the pod was done.
func (r *Result) IsInterrupted() bool {
	return r.Outcome == Canceled && r.Reason != ReasonFailFast && r.Reason != ReasonDependencyFailed
}

// Phase is one step of a pod's start, for the timeline.
type Phase struct {
	Name    string
	Start   time.Duration // since the start of the run
	Elapsed time.Duration
}

// Container is the state of one container of a pod. Its JSON is part of reports.
type Container struct {
	Name     string `json:"name"`
	Image    string `json:"image"`
	ImageID  string `json:"imageID,omitempty"`              // of the image's configuration
	Digest   string `json:"digest,omitempty"`               // of the image's manifest or index
	State    string `json:"state"`                          // Waiting, Running or Terminated
	ExitCode *int32 `json:"exitCode" jsonschema:"nullable"` // of the current or last termination; null if it never ended
	// ExitReason is how it ended then: Completed, Error, OOMKilled, StartError, ...
	ExitReason string `json:"exitReason,omitempty"`
	Restarts   int    `json:"restarts"`
	// Usage is what the current or last instance has used, as far as the kernel tells; left out if nothing is known.
	Usage   podusage.Total `json:"usage,omitzero"`
	LogPath string         `json:"logPath"`
	LogTail []string       `json:"logTail"` // last lines of a failed container's log
	// Output has the last lines of the log of another one, if Options ask for them.
	Output []string `json:"-"`
}

// EndedBadly says whether the container's last end may be why its pod is not at its goal.
func (c *Container) EndedBadly() bool {
	return c.ExitCode != nil && *c.ExitCode != 0 || c.ExitReason == podspec.ReasonOOMKilled
}
