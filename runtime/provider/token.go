package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/volume"
)

var _ volume.Tokens = (*Objects)(nil)

const (
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

// ServiceAccountToken returns a token of the pod's service account, a new one if it is time for that
// (pkg/kubelet/token). One that cannot be renewed is used until it expires.
func (o *Objects) ServiceAccountToken(ctx context.Context, pod *v1.Pod, s *v1.ServiceAccountTokenProjection) (string, error) {
	if o.CreateToken == nil {
		return "", errors.New("there are no tokens of service accounts")
	}
	key := tokenKey{pod: pod.UID, account: pod.Spec.ServiceAccountName, audience: s.Audience}
	if s.ExpirationSeconds != nil {
		key.seconds = *s.ExpirationSeconds
	}
	v, _ := o.tokens.Load(key)
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
	made, err := o.CreateToken(ctx, pod.Namespace, pod.Spec.ServiceAccountName, r)
	switch {
	case err == nil:
		expires := made.Status.ExpirationTimestamp.Time
		life := expires.Sub(now)
		o.tokens.Store(key, token{made.Status.Token, expires, now.Add(min(life*8/10, maxTokenAge))})
		return made.Status.Token, nil
	case known && time.Now().Before(old.expires):
		return old.text, nil
	}
	return "", fmt.Errorf("making it: %w", err)
}

// ForgetTokens forgets the tokens of a pod.
func (o *Objects) ForgetTokens(pod types.UID) {
	o.tokens.Range(func(k, _ any) bool {
		if key, ok := k.(tokenKey); ok && key.pod == pod {
			o.tokens.Delete(k)
		}
		return true
	})
}
