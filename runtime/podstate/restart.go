package podstate

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// restarts says whether a container that does not run is started again.
func restarts(pod *v1.Pod, def *v1.Container, c engine.Container) bool {
	return c.State == engine.StateCreated || podspec.Restarts(pod, def, Ended(c).ExitCode)
}

// CrashReset is how long a container must have run to have recovered from earlier crashes.
const CrashReset = 10 * time.Minute

// The kubelet's crash back-off (pkg/kubelet/kubelet.go, flowcontrol.Backoff).
const (
	crashBase = 10 * time.Second
	crashMax  = 300 * time.Second
)

// crashDelay is how long after its end a container that crashed quickly n times since it
// last ran well stays down: the first restart is immediate.
func crashDelay(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	d := crashBase
	for i := 2; i < n && d < crashMax; i++ {
		d *= 2
	}
	return min(d, crashMax)
}
