package containerd

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/runonce/runonce/internal/failure"
)

// runtimeTimeouts bound the commands of an OCI runtime, which runs as long as it likes.
type runtimeTimeouts struct {
	start time.Duration // for create and start
	end   time.Duration // for kill and delete
}

// defaultTimeouts: two minutes is the kubelet's runtimeRequestTimeout. An end takes a moment.
var defaultTimeouts = runtimeTimeouts{start: 2 * time.Minute, end: 30 * time.Second}

// hangRetries is how often a start is tried again after a command of the OCI runtime that did not
// finish.
const hangRetries = 1

// bounded calls containerd to have the OCI runtime run a command, and returns a clear error when
// that does not finish.
func (e *Engine) bounded(ctx context.Context, s *session, id, command string, call func(context.Context) error) error {
	limit := e.timeouts.end
	if command == "create" || command == "start" {
		limit = e.timeouts.start
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	err := call(limited)
	if err == nil || ctx.Err() != nil || !reached(limit, time.Since(begin)) {
		return err
	}
	return failure.Limited(hangRetries, fmt.Errorf("the OCI runtime%s did not finish %q of container %s within %s", runtimeName(ctx, s, id), command, id, limit))
}

// reached reports whether a call has come to its limit. The deadline goes to containerd with the
// call, and may end it there a moment earlier.
func reached(limit, elapsed time.Duration) bool { return elapsed >= limit-limit/20 }

// runtimeName returns the name of the container's OCI runtime after a space, empty when it is
// not known.
func runtimeName(ctx context.Context, s *session, id string) string {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	o, err := runcOptions(ctx, s, id)
	if err != nil || o == nil || o.BinaryName == "" {
		return ""
	}
	return " " + filepath.Base(o.BinaryName)
}
