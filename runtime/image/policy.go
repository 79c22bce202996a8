package image

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// Policy is what determines whether an image is pulled.
type Policy struct {
	Ref     string        // as in the manifest
	Pull    v1.PullPolicy // as defaulted
	Present bool          // the local store has the image
	// Local says that the user supplied the image in an archive. While it is present it is
	// never pulled: the machine may have no registry.
	Local bool
}

// Decide reports whether to pull the image. The error says that an absent image must not be
// pulled (pkg/kubelet/images imageManager.imageNotPresentOnNeverPolicyError, shouldPullImage).
func Decide(p Policy) (pull bool, err error) {
	switch {
	case p.Present && p.Local:
		return false, nil
	case p.Pull == v1.PullNever && !p.Present:
		return false, &failure.Error{
			Why: failure.ReasonImageNeverPull, Final: true,
			Err: failure.WithMessage(fmt.Sprintf("Container image %q is not present with pull policy of Never", p.Ref), nil),
		}
	case p.Pull == v1.PullAlways:
		return true, nil
	default:
		return !p.Present, nil
	}
}
