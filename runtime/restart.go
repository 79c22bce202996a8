package runtime

import (
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
)

// restarts says whether a container that does not run is started again.
func restarts(pod *v1.Pod, def *v1.Container, c engine.Container) bool {
	if c.State == engine.StateCreated {
		return true
	}
	return podspec.Restarts(pod, def, ended(c).ExitCode)
}

// The kubelet's crash back-off (pkg/kubelet/kubelet.go, flowcontrol.Backoff).
const (
	crashBase  = 10 * time.Second
	crashMax   = 300 * time.Second
	crashReset = 600 * time.Second
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
