// Package failure has the errors with which the runtime says why something could not be done
// to a pod, and functions to read them. These check for methods, so errors of other types may
// have them too: Permanent() bool, Refused() bool, Reason() string, RetryAfter() time.Duration,
// RetryDelay() time.Duration, Retries() int.
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
	// ReasonSignatureValidationFailed is that of an image that a verifier refuses.
	ReasonSignatureValidationFailed = "SignatureValidationFailed"
)

// Error adds to its cause what a caller has to know about it. For zero fields the cause's own
// values are used.
type Error struct {
	Why   string // the reason, a single word in CamelCase
	Final bool   // a retry cannot help
	// Ended says that the container has ended without having run, since an OCI runtime has refused to
	// start it: its restart policy decides what comes next.
	Ended bool
	Wait  time.Duration // before the next try; 0 leaves it to the caller
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

// Permanent says whether a retry cannot help.
func (e *Error) Permanent() bool { return e.Final || IsPermanent(e.Err) }

// Refused says whether the container has ended without having run.
func (e *Error) Refused() bool { return e.Ended || IsRefused(e.Err) }

// RetryAfter returns how long to wait before the next try, 0 when the caller decides.
func (e *Error) RetryAfter() time.Duration {
	if e.Wait > 0 {
		return e.Wait
	}
	return RetryAfter(e.Err)
}

// Permanentf returns an error that a retry cannot fix.
func Permanentf(format string, args ...any) error {
	return &Error{Final: true, Err: fmt.Errorf(format, args...)}
}

// ConfigErrorf returns a permanent error: the manifest asks for something that does not exist or
// is not allowed.
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

// IsPermanent reports whether the error, or one that it wraps, is permanent: it says so, or only
// a person can change its cause, such as a full disk.
func IsPermanent(err error) bool {
	var p interface{ Permanent() bool }
	return errors.As(err, &p) && p.Permanent() || hasPermanentCause(err)
}

// IsRefused reports whether the error, or one that it wraps, says that a container has ended without
// having run.
func IsRefused(err error) bool {
	var r interface{ Refused() bool }
	return errors.As(err, &r) && r.Refused()
}

// Reason returns the reason of the error, or of one that it wraps; else the given one.
func Reason(err error, otherwise string) string {
	var r interface{ Reason() string }
	if errors.As(err, &r) && r.Reason() != "" {
		return r.Reason()
	}
	return otherwise
}

// RetryAfter returns the wait of the error, or of one that it wraps, 0 for none.
func RetryAfter(err error) time.Duration {
	var r interface{ RetryAfter() time.Duration }
	if errors.As(err, &r) {
		return r.RetryAfter()
	}
	return 0
}

// RetryDelay returns the least wait before a retry that the error, or one that it wraps, asks for;
// 0 for none. Unlike that of RetryAfter, such a retry counts.
func RetryDelay(err error) time.Duration {
	var r interface{ RetryDelay() time.Duration }
	if errors.As(err, &r) {
		return r.RetryDelay()
	}
	return 0
}

// WithMessage returns an error with a different message than its cause.
func WithMessage(message string, cause error) error { return &messageError{message, cause} }

type messageError struct {
	message string
	cause   error
}

func (e *messageError) Error() string { return e.message }
func (e *messageError) Unwrap() error { return e.cause }
