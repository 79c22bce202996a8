package runtime

import (
	"fmt"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/failure"
)

// SyncError holds what went wrong in one Sync, in the order of the spec. Its first permanent
// error speaks for it, else its first error.
type SyncError struct {
	Errors []*failure.Error
}

// containerError is what SyncError holds for a container.
func containerError(name, reason string, err error) *failure.Error {
	return &failure.Error{Why: reason, Err: fmt.Errorf("container %q: %s: %w", name, reason, err)}
}

func (e *SyncError) Error() string {
	texts := make([]string, 0, len(e.Errors))
	for _, err := range e.Errors {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors.
func (e *SyncError) Unwrap() []error {
	errs := make([]error, 0, len(e.Errors))
	for _, err := range e.Errors {
		errs = append(errs, err)
	}
	return errs
}

func (e *SyncError) lead() *failure.Error {
	for _, err := range e.Errors {
		if err.Permanent() {
			return err
		}
	}
	for _, err := range e.Errors {
		if err.RetryAfter() == 0 {
			return err
		}
	}
	return e.Errors[0]
}

// Reason returns the reason of the error that speaks for all.
func (e *SyncError) Reason() string { return e.lead().Reason() }

// Permanent says whether no retry can help one of the errors.
func (e *SyncError) Permanent() bool { return e.lead().Permanent() }

// RetryAfter returns the shortest wait when every error asks for one, else 0: an error
// without a wait of its own is retried on the caller's schedule.
func (e *SyncError) RetryAfter() time.Duration {
	shortest := e.Errors[0].RetryAfter()
	for _, err := range e.Errors[1:] {
		shortest = min(shortest, err.RetryAfter())
	}
	return shortest
}
