package volume

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/ocispec"
)

// Tokens gives pods tokens of their service accounts. Objects that implement it come from a cluster.
type Tokens interface {
	// ServiceAccountToken returns the token that the source asks for, a new one when the one before
	// has to be renewed.
	ServiceAccountToken(ctx context.Context, pod *v1.Pod, source *v1.ServiceAccountTokenProjection) (string, error)
	// ForgetTokens forgets the tokens of a pod that is removed.
	ForgetTokens(pod types.UID)
}

// tokenMode keeps a token from all users but the one that it is for.
const tokenMode = int32(0o600)

// serviceAccountToken returns the file with the token that the source asks for.
func (m *Manager) serviceAccountToken(ctx context.Context, pod *v1.Pod, s *v1.ServiceAccountTokenProjection, defaults attributes) (payload, error) {
	tokens, ok := m.Objects.(Tokens)
	if !ok {
		return nil, errUnsupportedSource
	}
	text, err := tokens.ServiceAccountToken(ctx, pod, s)
	if err != nil {
		return nil, failure.FailedMountf("token of service account %q: %w", pod.Spec.ServiceAccountName, err)
	}
	user := s.User
	if user == nil && defaults.user == nil {
		user = fsUser(pod)
	}
	var mode *int32
	if c := pod.Spec.SecurityContext; user != nil || defaults.user != nil || c != nil && c.FSGroup != nil {
		mode = new(tokenMode) // setVolumeOwnership lets the group read it
	}
	return payload{s.Path: defaults.file([]byte(text), mode, user)}, nil
}

// forgetTokens forgets the tokens of a pod.
func (m *Manager) forgetTokens(pod types.UID) {
	if tokens, ok := m.Objects.(Tokens); ok {
		tokens.ForgetTokens(pod)
	}
}

// fsUser is the user of all containers of the pod, nil if they differ or it is not known
// (pkg/volume/util.FsUserFrom).
func fsUser(pod *v1.Pod) *int64 {
	var one *int64
	for _, c := range podspec.Containers(pod) {
		user := ocispec.SecurityContext(pod, c).RunAsUser
		if user == nil || one != nil && *one != *user {
			return nil
		}
		one = user
	}
	return one
}
