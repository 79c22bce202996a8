package podstate

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// RefuseDebug returns why an ephemeral container cannot be started in the pod now, nil if it can. The API server accepts
// it at any time, and a kubelet would never start some.
func RefuseDebug(o *Observation, c *v1.EphemeralContainer, now time.Time) error {
	name := podspec.FullName(o.Pod)
	if podspec.Container(o.Pod, c.Name) != nil {
		return fmt.Errorf("pod %q has a container %q already", name, c.Name)
	}
	if phase := Status(o, now).Phase; podspec.Ended(phase) {
		return fmt.Errorf("pod %q has ended: its phase is %s", name, phase)
	}
	if o.Sandbox == nil {
		return fmt.Errorf("pod %q does not run", name)
	}
	if target := c.TargetContainerName; target != "" && o.Containers[target].State != engine.StateRunning {
		return fmt.Errorf("container %q of pod %q is not running", target, name)
	}
	return nil
}
