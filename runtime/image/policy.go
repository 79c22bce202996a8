package image

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Policy is what decides whether an image is pulled.
type Policy struct {
	Ref     string        // as in the manifest
	Pull    v1.PullPolicy // as defaulted
	Present bool          // the local store has the image
	// Local says that the user gave the image along, in a directory of archives. Then it
	// is never pulled while it is there: such a machine may have no registry to ask.
	Local bool
}

// Decide reports whether the image is to be pulled. It returns a NeverPull when the
// policy forbids to pull an image that is not there (pkg/kubelet/images
// imageManager.imageNotPresentOnNeverPolicyError, shouldPullImage).
func Decide(p Policy) (pull bool, err error) {
	switch {
	case p.Present && p.Local:
		return false, nil
	case p.Pull == v1.PullNever && !p.Present:
		return false, &NeverPull{Ref: p.Ref}
	case p.Pull == v1.PullAlways:
		return true, nil
	default:
		return !p.Present, nil
	}
}

// NeverPull says that an image is not there and may not be pulled.
type NeverPull struct{ Ref string }

// Error uses the kubelet's words.
func (e *NeverPull) Error() string {
	return fmt.Sprintf("Container image %q is not present with pull policy of Never", e.Ref)
}

// Reason returns the kubelet's reason for a waiting container.
func (e *NeverPull) Reason() string { return "ErrImageNeverPull" }

// Permanent returns true: no retry brings the image.
func (e *NeverPull) Permanent() bool { return true }
