// Package image normalises the names of images, decides when one is pulled, reads archives of images,
// for machines without a registry, and finds the credentials of registries: in the pull secrets of pods,
// in the files of docker and podman, with the credential helpers that these name, and with the
// kubelet's credential provider plugins.
package image

import (
	"fmt"
	"strings"

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

// Mode says when images are pulled, in place of their pull policies.
type Mode string

// The modes.
const (
	ByPolicy Mode = ""        // as each pull policy says
	Missing  Mode = "missing" // when the image is not present
	Always   Mode = "always"
	Never    Mode = "never"
	// Newer pulls an image also if the registry has another one of that name. One that is
	// present stays if the registry cannot be used.
	Newer Mode = "newer"
)

// Action is how an image is got.
type Action int

// The actions.
const (
	Use  Action = iota // the local one
	Pull               // from the registry
	// PullNewer is Pull if the registry has another image than the local one.
	PullNewer
)

// Policy is what determines whether an image is pulled.
type Policy struct {
	Ref     string        // as in the manifest
	Pull    v1.PullPolicy // as defaulted
	Mode    Mode
	Present bool // the local store has the image
	// Absent says why one of that name does not count as present, nil if there is none.
	Absent error
	// Local says that the user supplied the image in an archive. While it is present it is
	// never pulled: the machine may have no registry.
	Local bool
}

// Decide returns how to get the image. The error says that an absent image must not be
// pulled (pkg/kubelet/images imageManager.imageNotPresentOnNeverPolicyError, shouldPullImage).
func Decide(p Policy) (Action, error) {
	policy := p.Pull
	switch p.Mode {
	case ByPolicy:
	case Missing:
		policy = v1.PullIfNotPresent
	case Always:
		policy = v1.PullAlways
	case Never:
		policy = v1.PullNever
	case Newer:
		policy = v1.PullIfNotPresent
		if p.Present && !p.Local && !strings.Contains(p.Ref, "@") {
			return PullNewer, nil
		}
	}
	switch {
	case p.Present && (p.Local || policy != v1.PullAlways):
		return Use, nil
	case policy == v1.PullNever:
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", p.Ref)
		if p.Absent != nil {
			message += fmt.Sprintf(": there is one of that name, but %v", p.Absent)
		}
		return Use, &failure.Error{Why: failure.ReasonImageNeverPull, Final: true, Err: failure.WithMessage(message, p.Absent)}
	}
	return Pull, nil
}

// Same reports whether an image in the store, by its normalised reference and its digest, is the
// one that a normalised reference means. One with a digest also means the image that came with a
// tag.
func Same(ref, stored, digest string) bool {
	if ref == stored {
		return true
	}
	name, want, ok := strings.Cut(ref, "@")
	if !ok || want != digest {
		return false
	}
	return name == Repository(stored)
}

// Repository returns a normalised reference without tag and digest.
func Repository(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		name = name[:i]
	}
	return name
}
