// Package image normalises the names of images, decides when one is pulled, and reads archives
// of images, for machines without a registry.
package image

import (
	"fmt"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// Normalize returns the full form of an image reference, as in image stores: "busybox" is
// "docker.io/library/busybox:latest". Of a tag and a digest only the digest is kept. Errors are
// permanent.
func Normalize(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", invalidName(ref, err)
	}
	return named.String(), nil
}

// invalidName uses the kubelet's words (pkg/kubelet/images, applyDefaultImageTag).
func invalidName(ref string, err error) error {
	return &failure.Error{
		Why: failure.ReasonInvalidImageName, Final: true, Err: fmt.Errorf("couldn't parse image name %q: %w", ref, err),
	}
}

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
