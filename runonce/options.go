package runonce

import (
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Options say how a plan is carried out. The zero value is what a run does by default.
type Options struct {
	Until Until   // UntilRunning when empty
	Retry Backoff // DefaultBackoff when zero
	// Timeout is one deadline for the whole run, counted from Start; 0 for none.
	Timeout time.Duration
	// Parallel bounds how many pods are synced at once, 0 for twice the processors. A
	// pod that only waits takes no place.
	Parallel int
	// Settle is how long a container must have run to count as running.
	Settle time.Duration
	// Remove stops and removes what this run has started, once the result is known.
	Remove bool
	// Logs finds the logs of containers; nil leaves them out of the results.
	Logs Logs
	// Trace holds the steps that the runtime reports; nil leaves them out.
	Trace *Trace
	// Cleared, when set, is called once all that has to go has gone, before the first pod
	// is started.
	Cleared func()
	// Progress, when set, is told what happens; calls do not overlap.
	Progress func(Progress)
	Logger   *slog.Logger
	// Start is when the run began, now when zero; elapsed times count from it.
	Start time.Time
}

// Logs finds what containers have written.
type Logs interface {
	// Path returns the log file of one instance of a container, which need not exist.
	Path(pod *v1.Pod, container string, restart int) string
	// Tail returns the last lines of one instance of a container, at most n.
	Tail(pod *v1.Pod, container string, restart, n int) ([]string, error)
}

// Progress is something that happened to a pod.
type Progress struct {
	Pod *v1.Pod
	// State is one word: Stopping, Starting, Waiting, Retrying or an Outcome.
	State   string
	Message string
	Done    int // pods at their goal or at their end
	Total   int
}

// Validate returns every error in the options, joined.
func (o Options) Validate() error {
	var errs []error
	if o.Until != "" && !o.Until.valid() {
		errs = append(errs, fmt.Errorf("goal %q is none of running, ready, completed", o.Until))
	}
	if o.Timeout < 0 || o.Settle < 0 {
		errs = append(errs, errors.New("a time must not be negative"))
	}
	if o.Parallel < 0 {
		errs = append(errs, fmt.Errorf("%d pods at once: must not be negative", o.Parallel))
	}
	return errors.Join(append(errs, o.Retry.Validate())...)
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Until == "" {
		o.Until = UntilRunning
	}
	if o.Retry == (Backoff{}) {
		o.Retry = DefaultBackoff()
	}
	if o.Parallel == 0 {
		o.Parallel = 2 * goruntime.NumCPU()
	}
	if o.Cleared == nil {
		o.Cleared = func() {}
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Start.IsZero() {
		o.Start = time.Now()
	}
	return o
}
