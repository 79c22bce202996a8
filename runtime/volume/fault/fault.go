// Package fault is how the volumes of a pod say what is wrong with them.
package fault

import "fmt"

// ReasonFailedMount is the reason of every fault of a volume, in the kubelet's words.
const ReasonFailedMount = "FailedMount"

// Error is a fault of a volume that no retry can mend.
type Error struct {
	Err error
	Why string // the reason where it is not ReasonFailedMount
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reason returns the kubelet's word for it.
func (e *Error) Reason() string {
	if e.Why != "" {
		return e.Why
	}
	return ReasonFailedMount
}

// Permanent is true: the manifest itself would have to change.
func (e *Error) Permanent() bool { return true }

// Refusef returns an Error.
func Refusef(format string, args ...any) error {
	return &Error{Err: fmt.Errorf(format, args...)}
}
