package runtime_test

import (
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// TestPullSecrets: a pod's pull secrets have the credentials for its images, and an absent one
// is no error.
func TestPullSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.engine.Users = map[string]engine.Credential{"localhost/far:1": {User: "me", Password: "pw"}}
		n.objects.Secrets = map[string]*v1.Secret{
			"default/login": {Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {"localhost": {"username": "me", "password": "pw"}}}`)}},
		}
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep")
		pod.Spec.Containers[0].Image = "localhost/far:1"
		pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "gone"}, {}}
		if err := p.Sync(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "401 Unauthorized") {
			t.Errorf("without credentials: %v", err)
		}
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: "login"})
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Error(err)
		}
		wantStates(t.Context(), t, p, pod, "c0=running")
	})
}
