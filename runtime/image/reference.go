// Package image normalises the names of images, decides when one is pulled, and reads archives
// of images, for machines without a registry.
package image

import (
	"fmt"

	"github.com/distribution/reference"

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
