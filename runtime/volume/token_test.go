package volume

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// clusterObjects are objects that can make tokens, numbered ones.
type clusterObjects struct {
	enginetest.Objects
	made int
	err  error
}

func (c *clusterObjects) CreateToken(_ context.Context, _, account string, r *authentication.TokenRequest) (*authentication.TokenRequest, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.made++
	made := r.DeepCopy()
	made.Status.Token = fmt.Sprintf("%s %v %d", account, r.Spec.Audiences, c.made)
	made.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second))
	return made, nil
}

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
			if got := fmt.Sprintf("%04o %d", f.mode, owner); got != tc.want || string(f.data) != "web [vault] 1" {
				t.Errorf("%s, want %s; %q", got, tc.want, f.data)
			}
		})
	}
}

// TestTokenExpires: one that cannot be renewed is used until then, and no longer.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := &clusterObjects{}
		m, pod := &Manager{Root: t.TempDir(), Objects: objects, Mounter: enginetest.Mounts{}}, &v1.Pod{}
		pod.UID = "u"
		source := &v1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(600))}
		get := func() string {
			text, err := m.token(t.Context(), objects, pod, source)
			return fmt.Sprint(text, " ", err)
		}
		check := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			if got := get(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		check(0, " [] 1 <nil>")
		check(479*time.Second, " [] 1 <nil>")
		objects.err = errors.New("no connection")
		check(120*time.Second, " [] 1 <nil>")
		check(2*time.Second, " making it: no connection")
		objects.err = nil
		check(0, " [] 2 <nil>")
		if err := m.Teardown(t.Context(), pod); err != nil {
			t.Error(err)
		}
		check(0, " [] 3 <nil>") // nothing was remembered
	})
}
