package containerd

import (
	"fmt"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/containerd/v2/contrib/apparmor"
	hostapparmor "github.com/containerd/containerd/v2/pkg/apparmor"

	"github.com/runonce/runonce/runtime/ocispec"
)

// HasAppArmor reports whether AppArmor can confine containers: the kernel has it, and the
// program that loads profiles is installed.
func HasAppArmor() bool { return hostapparmor.HostSupports() }

// confine loads the default AppArmor profile for a container that asks for it, unless it is
// already loaded.
func confine(c engine.ContainerConfig) error {
	if c.Spec.Process == nil || c.Spec.Process.ApparmorProfile != ocispec.DefaultAppArmor {
		return nil
	}
	if err := apparmor.LoadDefaultProfile(ocispec.DefaultAppArmor); err != nil {
		return &failure.Error{Why: failure.ReasonCreateError, Err: fmt.Errorf("loading the default AppArmor profile: %w", err)}
	}
	return nil
}
