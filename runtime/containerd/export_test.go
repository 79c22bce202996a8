package containerd

import "time"

// SetTimeouts makes the OCI runtime's commands end sooner.
func (e *Engine) SetTimeouts(start, end time.Duration) {
	e.timeouts = runtimeTimeouts{start: start, end: end}
}
