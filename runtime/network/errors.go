package network

import "fmt"

// Error says what could not be done to the network of which pod. It tells by Permanent
// whether a retry can mend it.
type Error struct {
	Pod   string // namespace/name
	Op    string // what was being done: "attaching it to network \"x\""
	Final bool
	Err   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("network of pod %q: %s: %v", e.Pod, e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Permanent reports whether the cause lies in the manifest or in what is installed on
// the machine, so that no retry mends it.
func (e *Error) Permanent() bool { return e.Final }
