// Package failure is how the runtime says why something could not be done to a pod, and
// how others read it. They ask for behaviour, so that an error of any type can answer:
// Permanent() bool, Reason() string, RetryAfter() time.Duration.
package failure

import (
	"errors"
	"fmt"
	"time"
)

// The reasons, in the kubelet's words (pkg/kubelet/container/sync_result.go,
// pkg/kubelet/images/types.go).
const (
	ReasonErrImagePull     = "ErrImagePull"
	ReasonImageNeverPull   = "ErrImageNeverPull"
	ReasonInvalidImageName = "InvalidImageName"
	ReasonConfigError      = "CreateContainerConfigError"
	ReasonCreateError      = "CreateContainerError"
	ReasonRunError         = "RunContainerError"
	ReasonFailedMount      = "FailedMount"
)

// Error adds to its cause what a caller has to know of it. What it leaves out, the cause
// may say.
type Error struct {
	Why   string        // the reason, a single word in CamelCase
	Final bool          // no retry can help
	Wait  time.Duration // until the next try makes sense; 0 leaves it to the caller
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reason returns the reason, or that of the cause, or "".
func (e *Error) Reason() string {
	if e.Why != "" {
		return e.Why
	}
	return Reason(e.Err, "")
}

// Permanent says whether no retry can help.
func (e *Error) Permanent() bool { return e.Final || IsPermanent(e.Err) }

// RetryAfter returns how long to wait before the next try, 0 when the caller's own
// schedule decides.
func (e *Error) RetryAfter() time.Duration {
	if e.Wait > 0 {
		return e.Wait
	}
	return RetryAfter(e.Err)
}

// Permanentf returns an error that no retry can help.
func Permanentf(format string, args ...any) error {
	return &Error{Final: true, Err: fmt.Errorf(format, args...)}
}

// ConfigErrorf returns a permanent error: the manifest asks for what is not there or not
// allowed.
func ConfigErrorf(format string, args ...any) error {
	return &Error{Why: ReasonConfigError, Final: true, Err: fmt.Errorf(format, args...)}
}

// CreateErrorf returns a permanent error: the container cannot be made from its image.
func CreateErrorf(format string, args ...any) error {
	return &Error{Why: ReasonCreateError, Final: true, Err: fmt.Errorf(format, args...)}
}

// FailedMountf returns a permanent error of a volume: the manifest would have to change.
func FailedMountf(format string, args ...any) error {
	return &Error{Why: ReasonFailedMount, Final: true, Err: fmt.Errorf(format, args...)}
}

// IsPermanent reports whether the error, or one that it wraps, says that no retry can help.
func IsPermanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent()
}

// Reason returns the reason that the error, or one that it wraps, gives; else the other one.
func Reason(err error, otherwise string) string {
	var r interface{ Reason() string }
	if errors.As(err, &r) && r.Reason() != "" {
		return r.Reason()
	}
	return otherwise
}

// RetryAfter returns the wait that the error, or one that it wraps, asks for, 0 for none.
func RetryAfter(err error) time.Duration {
	var r interface{ RetryAfter() time.Duration }
	if errors.As(err, &r) {
		return r.RetryAfter()
	}
	return 0
}

// WithMessage returns an error with another message than its cause's.
func WithMessage(message string, cause error) error { return &told{message, cause} }

type told struct {
	message string
	cause   error
}

func (t *told) Error() string { return t.message }
func (t *told) Unwrap() error { return t.cause }
