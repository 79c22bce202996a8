package volume

import (
	"context"
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/ocispec"
)

// Tokens makes tokens of service accounts. Objects that implement it come from a cluster.
type Tokens interface {
	CreateToken(ctx context.Context, namespace, serviceAccount string, r *authentication.TokenRequest) (*authentication.TokenRequest, error)
}

const (
	// tokenMode keeps a token from all users but the one that it is for.
	tokenMode = int32(0o600)
	// maxTokenAge is when a token is renewed at the latest.
	maxTokenAge = 24 * time.Hour
	// tokenTimeout bounds a call to the cluster.
	tokenTimeout = 30 * time.Second
)

// tokenKey identifies a token. Volumes that ask for the same one share it.
type tokenKey struct {
	pod      types.UID
	account  string
	audience string
	seconds  int64
}

// token is a token that has been made.
type token struct {
	text    string
	expires time.Time
	renew   time.Time
}

// serviceAccountToken returns the file with the token that the source asks for.
func (m *Manager) serviceAccountToken(ctx context.Context, pod *v1.Pod, s *v1.ServiceAccountTokenProjection, defaults attributes) (payload, error) {
	source, ok := m.Objects.(Tokens)
	if !ok {
		return nil, errUnsupportedSource
	}
	text, err := m.token(ctx, source, pod, s)
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

// token returns a token, a new one if it is time for that (pkg/kubelet/token). One that cannot be
// renewed is used until it expires.
func (m *Manager) token(ctx context.Context, source Tokens, pod *v1.Pod, s *v1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{pod.UID, pod.Spec.ServiceAccountName, s.Audience, 0}
	if s.ExpirationSeconds != nil {
		key.seconds = *s.ExpirationSeconds
	}
	v, _ := m.tokens.Load(key)
	old, known := v.(token)
	if known && time.Now().Before(old.renew) {
		return old.text, nil
	}
	r := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
		BoundObjectRef:    &authentication.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if s.Audience != "" {
		r.Spec.Audiences = []string{s.Audience}
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	now := time.Now()
	made, err := source.CreateToken(ctx, pod.Namespace, pod.Spec.ServiceAccountName, r)
	switch {
	case err == nil:
		expires := made.Status.ExpirationTimestamp.Time
		life := expires.Sub(now)
		m.tokens.Store(key, token{made.Status.Token, expires, now.Add(min(life*8/10, maxTokenAge))})
		return made.Status.Token, nil
	case known && time.Now().Before(old.expires):
		return old.text, nil
	}
	return "", fmt.Errorf("making it: %w", err)
}

// forgetTokens forgets the tokens of a pod.
func (m *Manager) forgetTokens(pod types.UID) {
	m.tokens.Range(func(k, _ any) bool {
		if key, ok := k.(tokenKey); ok && key.pod == pod {
			m.tokens.Delete(k)
		}
		return true
	})
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
