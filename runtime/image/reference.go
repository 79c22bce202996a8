// Package image names images, decides when one is pulled, and finds the archives of
// images that a machine without a registry is given.
package image

import (
	"fmt"

	"github.com/distribution/reference"
)

// Normalize returns the full form of an image reference as image stores know it:
// "busybox" is "docker.io/library/busybox:latest". A reference with a tag and a digest
// keeps only the digest, since the tag says nothing then. The error is an InvalidName.
func Normalize(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", &InvalidName{Ref: ref, Err: err}
	}
	return named.String(), nil
}

// InvalidName says that an image reference cannot be read.
type InvalidName struct {
	Ref string
	Err error
}

// Error uses the kubelet's words (pkg/kubelet/images, applyDefaultImageTag).
func (e *InvalidName) Error() string {
	return fmt.Sprintf("couldn't parse image name %q: %v", e.Ref, e.Err)
}

// Unwrap returns the cause.
func (e *InvalidName) Unwrap() error { return e.Err }

// Reason returns the kubelet's reason for a waiting container.
func (e *InvalidName) Reason() string { return "InvalidImageName" }

// Permanent returns true: the manifest has to change.
func (e *InvalidName) Permanent() bool { return true }
