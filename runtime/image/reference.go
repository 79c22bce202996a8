// Package image names images, decides when one is pulled, and finds the archives of
// images that a machine without a registry is given.
package image

import (
	"fmt"

	"github.com/distribution/reference"

	"github.com/runonce/runonce/internal/failure"
)

// Normalize returns the full form of an image reference as image stores know it:
// "busybox" is "docker.io/library/busybox:latest". A reference with a tag and a digest
// keeps only the digest, since the tag says nothing then. Errors are permanent.
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
