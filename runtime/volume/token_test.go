package volume

import (
	"context"
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// clusterObjects are objects that can make tokens.
type clusterObjects struct {
	enginetest.Objects
	forgotten types.UID
}

func (c *clusterObjects) ServiceAccountToken(_ context.Context, pod *v1.Pod, s *v1.ServiceAccountTokenProjection) (string, error) {
	if s.Audience == "" {
		return "", errors.New("no connection")
	}
	return pod.Spec.ServiceAccountName + " " + s.Audience, nil
}

func (c *clusterObjects) ForgetTokens(pod types.UID) { c.forgotten = pod }

// TestTokenFile: only the user of the containers, or the group of the volume, can read a token
// (pkg/volume/projected).
func TestTokenFile(t *testing.T) {
	t.Parallel()
	user := func(n int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: &n} }
	for name, tc := range map[string]struct {
		pod        *v1.PodSecurityContext
		containers []*v1.SecurityContext
		own        *int64
		want       string
	}{
		"no user":         {containers: []*v1.SecurityContext{nil}, want: "0644 -1"},
		"user of the pod": {pod: &v1.PodSecurityContext{RunAsUser: new(int64(7))}, containers: []*v1.SecurityContext{nil, nil}, want: "0600 7"},
		"same user":       {containers: []*v1.SecurityContext{user(8), user(8)}, want: "0600 8"},
		"other users":     {containers: []*v1.SecurityContext{user(8), user(9)}, want: "0644 -1"},
		"one without":     {containers: []*v1.SecurityContext{user(8), nil}, want: "0644 -1"},
		"group":           {pod: &v1.PodSecurityContext{FSGroup: new(int64(5))}, containers: []*v1.SecurityContext{nil}, want: "0600 -1"},
		"user of the token": {
			pod: &v1.PodSecurityContext{RunAsUser: new(int64(7))}, containers: []*v1.SecurityContext{nil}, own: new(int64(9)), want: "0600 9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &v1.Pod{Spec: v1.PodSpec{ServiceAccountName: "web", SecurityContext: tc.pod}}
			for _, s := range tc.containers {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{SecurityContext: s})
			}
			m := &Manager{Objects: &clusterObjects{}}
			source := &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600)), Audience: "vault", User: tc.own}
			files, err := m.serviceAccountToken(t.Context(), pod, source, attributes{mode: new(int32(0o644))})
			if err != nil {
				t.Fatal(err)
			}
			f, owner := files["token"], int64(-1)
			if f.user != nil {
				owner = *f.user
			}
			if got := fmt.Sprintf("%04o %d", f.mode, owner); got != tc.want || string(f.data) != "web vault" {
				t.Errorf("%s, want %s; %q", got, tc.want, f.data)
			}
		})
	}
}

// TestTokenError: it names the service account.
func TestTokenError(t *testing.T) {
	t.Parallel()
	m := &Manager{Objects: &clusterObjects{}}
	pod := &v1.Pod{Spec: v1.PodSpec{ServiceAccountName: "web"}}
	_, err := m.serviceAccountToken(t.Context(), pod, &v1.ServiceAccountTokenProjection{}, attributes{})
	if want := `token of service account "web": no connection`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTokensAreForgotten: with the pod.
func TestTokensAreForgotten(t *testing.T) {
	t.Parallel()
	objects := &clusterObjects{}
	m, pod := &Manager{Root: t.TempDir(), Objects: objects, Mounter: enginetest.Mounts{}}, &v1.Pod{}
	pod.UID = "u"
	if err := m.Teardown(t.Context(), pod); err != nil || objects.forgotten != "u" {
		t.Errorf("%q is forgotten, %v", objects.forgotten, err)
	}
}
