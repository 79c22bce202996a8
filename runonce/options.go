package runonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	goruntime "runtime"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
)

// DefaultMaxRestarts is how often a container may be restarted unless the options say otherwise.
const DefaultMaxRestarts = 3

// Options say how a plan is carried out. The zero value is the default.
type Options struct {
	Until Until   // UntilRunning if empty
	Await Await   // what the run waits for besides; nothing if zero
	Retry Backoff // DefaultBackoff if zero
	// Timeout is the deadline of the whole run, counted from Start; 0 for none.
	Timeout time.Duration
	// Parallel limits how many pods are synced at once; 0 means three times the number of
	// processors. A pod that only waits, for its images as well, does not count.
	Parallel int
	// Settle is how long a container must have run, counted from its own start, to count as
	// running, unless a probe proves that it works. One that has crashed in this run must run
	// for that much longer than any of its instances has lived. With 0 it counts at once.
	Settle time.Duration
	// MaxRestarts is how often a container may be restarted in this run after it has crashed;
	// nil means DefaultMaxRestarts, and no limit with Keep. For a Job's pods its backoffLimit
	// counts instead.
	MaxRestarts *int
	// FailFast ends the run when the first pod has failed.
	FailFast bool
	// Keep, if not nil, has the run go on when the results are known: it keeps the pods at their
	// goal, and tries those again that it had given up after errors, until Keep is closed. Then
	// what the runtime does is finished first, except for pulls.
	Keep <-chan struct{}
	// Remove says which pods that this run has started it stops and removes when the results are known.
	Remove Removal
	// Logs finds the logs of containers; nil leaves them out of the results.
	Logs Logs
	// Outputs says that the results have the end of every log, not only of those of failed containers.
	Outputs bool
	// Events says that the results have the events of all pods, not only of those that are not at their goal.
	Events bool
	// Notes are what there is to say about pods that are at their goal, by UID.
	Notes map[types.UID]Note
	// Trace has the steps that the runtime reports; nil leaves them out of the results.
	Trace *Trace
	// AfterStops, if set, is called once, when all pods that the plan stops have stopped and
	// before the first pod is started that does not run yet.
	AfterStops func()
	// Concluded, if set, is called with the results when they are known, before the run removes its
	// pods or keeps them at their goal.
	Concluded func([]Result)
	// Progress, if set, is called with every event; calls do not overlap.
	Progress func(Progress)
	Logger   *slog.Logger
	// Reserve, if set, reserves room for pods that have waited for it, beside the pods of other runs. While no
	// other run plans, it calls choose once, and reserves what that returns. If other runs may have
	// admitted pods since the last call, or look is true, choose gets the pods of the machine, else nil.
	Reserve func(ctx context.Context, look bool, choose func(*admit.Present) []*v1.Pod) error
	// Start is when the run began, now if zero; elapsed times count from it.
	Start time.Time
	// Meter, if set, is told what the run measures, and Seen is when the pods of its plan were first seen, Start if
	// zero.
	Meter Meter
	Seen  time.Time
}

// Note is the reason and the message of a pod at its goal, unless it has others.
type Note struct{ Reason, Message string }

// Logs finds the logs of containers.
type Logs interface {
	// Path returns the log file of one instance of a container, by the ID in the pod's status;
	// empty if it has none.
	Path(pod *v1.Pod, container, id string) string
	// Tail returns the last lines of a log file, at most n.
	Tail(path string, n int) ([]string, error)
}

// Progress is an event of a pod.
type Progress struct {
	Pod *v1.Pod
	// State is one word: Stopping, Stopped, StopFailed, Pulling, Starting, Waiting, Retrying or an
	// Outcome.
	State   string
	Reason  string // of Waiting and of an Outcome
	Message string
	Lacks   string    // what a pod waits for that is Queued, in a few words
	RetryAt time.Time // when the next try is due, while Retrying
	// Within is how long the pod has to stop, while Stopping, if that is less than its grace period.
	Within time.Duration
	Done   int // pods that have reached their goal or have ended
	Total  int
}

// Validate returns an error in the options, which names the flag.
func (o Options) Validate() error {
	if !slices.Contains([]Until{"", UntilRunning, UntilReady, UntilCompleted}, o.Until) {
		return fmt.Errorf("--until %q: must be one of running, ready, completed", o.Until)
	}
	return o.Retry.Validate()
}

// WithTimeout returns a context that is done when the run times out.
func (o Options) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, o.Start.Add(o.Timeout), errTimeout)
}

// errTimeout is the cause of a context that has reached the deadline of the run.
var errTimeout = errors.New("the run has timed out")

// failFastError is the cause of a context that is done because a pod has failed.
type failFastError struct{ pod string }

func (e failFastError) Error() string {
	return fmt.Sprintf("the run ended because pod %q failed", e.pod)
}

func isFailFast(cause error) bool {
	var e failFastError
	return errors.As(cause, &e)
}

// interrupted is the outcome of a pod that was not done when the run ended for the given cause.
func interrupted(cause error) Outcome {
	if errors.Is(cause, errTimeout) || errors.Is(cause, context.DeadlineExceeded) {
		return TimedOut
	}
	return Canceled
}

// ignoreCanceled returns the error if it says more than that ctx is done.
func ignoreCanceled(ctx context.Context, err error) error {
	if err == nil || err.Error() == ctx.Err().Error() || err.Error() == context.Cause(ctx).Error() {
		return nil
	}
	return err
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	o.Until = cmp.Or(o.Until, UntilRunning)
	o.Retry = cmp.Or(o.Retry, DefaultBackoff())
	o.Parallel = cmp.Or(o.Parallel, 3*goruntime.NumCPU())
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Start = cmp.Or(o.Start, time.Now())
	o.Seen = cmp.Or(o.Seen, o.Start)
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	if o.MaxRestarts == nil {
		o.MaxRestarts = new(DefaultMaxRestarts)
		if o.Keep != nil {
			o.MaxRestarts = new(math.MaxInt)
		}
	}
	if o.AfterStops == nil {
		o.AfterStops = func() {}
	}
	if o.Reserve == nil {
		o.Reserve = func(_ context.Context, _ bool, choose func(*admit.Present) []*v1.Pod) error {
			choose(nil)
			return nil
		}
	}
	if o.Concluded == nil {
		o.Concluded = func([]Result) {}
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}
