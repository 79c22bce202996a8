package runtime

import (
	"fmt"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/failure"
)

// ContainerError says why a container, or what its pod needs before it, could not be
// brought up.
type ContainerError struct {
	Container string // empty when it concerns the pod: a volume, the network
	Why       string // one of podstate's, or the engine's own reason
	Err       error
	Wait      time.Duration // time until the next try makes sense; 0 leaves it to the caller
}

func (e *ContainerError) Error() string {
	if e.Container == "" {
		return fmt.Sprintf("%s: %v", e.Why, e.Err)
	}
	return fmt.Sprintf("container %q: %s: %v", e.Container, e.Why, e.Err)
}

// Unwrap returns the cause.
func (e *ContainerError) Unwrap() error { return e.Err }

// Reason returns the reason, a single word in CamelCase.
func (e *ContainerError) Reason() string { return e.Why }

// Permanent says whether no retry can mend the cause.
func (e *ContainerError) Permanent() bool { return failure.IsPermanent(e.Err) }

// RetryAfter returns how long to wait before the next try, 0 when the caller's own
// schedule decides.
func (e *ContainerError) RetryAfter() time.Duration { return e.Wait }

// SyncError holds what went wrong in one Sync, in spec order. Its first permanent fault
// speaks for it, else its first fault.
type SyncError struct {
	Faults []*ContainerError
}

// newSyncError returns nil when there are no faults.
func newSyncError(faults []*ContainerError) error {
	if len(faults) == 0 {
		return nil
	}
	return &SyncError{Faults: faults}
}

func (e *SyncError) Error() string {
	texts := make([]string, 0, len(e.Faults))
	for _, f := range e.Faults {
		texts = append(texts, f.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the faults.
func (e *SyncError) Unwrap() []error {
	errs := make([]error, 0, len(e.Faults))
	for _, f := range e.Faults {
		errs = append(errs, f)
	}
	return errs
}

func (e *SyncError) lead() *ContainerError {
	for _, f := range e.Faults {
		if f.Permanent() {
			return f
		}
	}
	for _, f := range e.Faults {
		if f.Wait == 0 {
			return f
		}
	}
	return e.Faults[0]
}

// Reason returns the reason of the fault that speaks for all.
func (e *SyncError) Reason() string { return e.lead().Why }

// Permanent says whether any fault is one that no retry can mend.
func (e *SyncError) Permanent() bool { return e.lead().Permanent() }

// RetryAfter returns the shortest wait when every fault asks for one, else 0: a fault
// without a wait of its own is retried on the caller's schedule.
func (e *SyncError) RetryAfter() time.Duration {
	shortest := e.Faults[0].Wait
	for _, f := range e.Faults[1:] {
		shortest = min(shortest, f.Wait)
	}
	return shortest
}
