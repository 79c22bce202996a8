package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runonce/runonce/runtime/provider"
)

// secretText is in every token.
const secretText = "eyJhbGciOi"

// clusterTokens makes numbered tokens, or fails.
type clusterTokens struct {
	mu       sync.Mutex
	requests []authentication.TokenRequestSpec
	err      error
	ca       string // the cluster's certificate
}

// change changes something while the provider works.
func (c *clusterTokens) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// count is how many tokens there were.
func (c *clusterTokens) count() (n int) {
	c.change(func() { n = len(c.requests) })
	return n
}

func (c *clusterTokens) configMap(namespace, name string) (found *v1.ConfigMap, err error) {
	c.change(func() { found = &v1.ConfigMap{Data: map[string]string{"ca.crt": c.ca}} })
	if namespace+"/"+name != "default/kube-root-ca.crt" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return found, nil
}

func (c *clusterTokens) create(_ context.Context, namespace, account string, r *authentication.TokenRequest) (*authentication.TokenRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.requests = append(c.requests, r.Spec)
	made := r.DeepCopy()
	made.Status.Token = fmt.Sprintf("%s %s/%s %d", secretText, namespace, account, len(c.requests))
	made.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second))
	return made, nil
}

// withAccess adds to the pod what the admission plugin ServiceAccount adds.
func withAccess(pod *v1.Pod, seconds int64) *v1.Pod {
	pod.Spec.ServiceAccountName = "default"
	pod.Spec.Volumes = []v1.Volume{{Name: "kube-api-access-x", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)),
		Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{
				LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
			}}},
		},
	}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{
		Name: "kube-api-access-x", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true,
	}}
	return pod
}

// TestServiceAccountToken: the files of the default mount, and when the token is renewed.
func TestServiceAccountToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, tokens := newNode(t), &clusterTokens{ca: "CA 1"}
		var log bytes.Buffer
		n.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		n.objects = &provider.Objects{CreateToken: tokens.create, ConfigMaps: tokens.configMap}
		p := n.provider(t.Context(), t)
		web := withAccess(newPod("web", v1.RestartPolicyAlways, "sleep"), 3600)
		must(t, p.CreatePod(t.Context(), web))
		dir := filepath.Join(n.root, "pods", string(web.UID), "volumes", "kubernetes.io~projected", "kube-api-access-x")
		files := func() string {
			var all []string
			for _, name := range []string{"token", "ca.crt", "namespace"} {
				text, err := os.ReadFile(filepath.Join(dir, name))
				must(t, err)
				all = append(all, strings.TrimPrefix(string(text), secretText+" "))
			}
			return strings.Join(all, ", ")
		}
		synctest.Wait()
		want(t, "at first", files(), "default/default 1, CA 1, default")
		want(t, "bound to", *tokens.requests[0].BoundObjectRef, authentication.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: web.UID})
		first, err := os.Readlink(filepath.Join(dir, "..data"))
		must(t, err)
		time.Sleep(47 * time.Minute)
		want(t, "before four fifths of its life", files(), "default/default 1, CA 1, default")
		tokens.change(func() { tokens.ca = "CA 2" })
		time.Sleep(3 * time.Minute)
		want(t, "after that", files(), "default/default 2, CA 2, default")
		if second, err := os.Readlink(filepath.Join(dir, "..data")); err != nil || second == first {
			t.Errorf("written in place: %s, %v", second, err)
		}
		tokens.change(func() { tokens.err = errors.New("no connection") })
		time.Sleep(time.Hour)
		want(t, "without the cluster", files(), "default/default 2, CA 2, default")
		tokens.change(func() { tokens.err = nil })
		time.Sleep(2 * time.Minute)
		want(t, "with it again", files(), "default/default 3, CA 2, default")
		onlyIn(t, n.root, dir)
		synctest.Wait()
		if strings.Contains(log.String(), secretText) {
			t.Errorf("a token is in the log: %s", &log)
		}
		remove(t, p, web)
		onlyIn(t, n.root, dir)
	})
}

// onlyIn checks that no file but those of the volume has a token.
func onlyIn(t *testing.T, root, volume string) {
	t.Helper()
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, volume+"/") {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(secretText)) {
			t.Errorf("a token is in %s", path)
		}
		return err
	}))
}

// TestEndedPodGetsNoTokens: one that has run to its end needs none.
func TestEndedPodGetsNoTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, tokens := newNode(t), &clusterTokens{}
		n.objects = &provider.Objects{CreateToken: tokens.create, ConfigMaps: tokens.configMap}
		p := n.provider(t.Context(), t)
		must(t, p.CreatePod(t.Context(), withAccess(newPod("job", v1.RestartPolicyNever, "exit 0"), 600)))
		time.Sleep(time.Hour)
		want(t, "tokens", tokens.count(), 1)
	})
}

// TestLongLivedToken: a token is renewed after a day, however long it lives.
func TestLongLivedToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, tokens := newNode(t), &clusterTokens{}
		n.objects = &provider.Objects{CreateToken: tokens.create}
		p := n.provider(t.Context(), t)
		web := withAccess(newPod("web", v1.RestartPolicyAlways, "sleep"), 1000*3600)
		web.Spec.Volumes[0].Projected.Sources = web.Spec.Volumes[0].Projected.Sources[:1]
		must(t, p.CreatePod(t.Context(), web))
		time.Sleep(23 * time.Hour)
		want(t, "within a day", tokens.count(), 1)
		time.Sleep(2 * time.Hour)
		want(t, "after it", tokens.count(), 2)
	})
}

// TestTokenExpires: one that cannot be renewed is used until then, and no longer.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens, pod := &clusterTokens{}, newPod("web", v1.RestartPolicyAlways, "sleep")
		objects := &provider.Objects{CreateToken: tokens.create}
		source := &v1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(600))}
		check := func(after time.Duration, wanted string) {
			t.Helper()
			time.Sleep(after)
			text, err := objects.ServiceAccountToken(t.Context(), pod, source)
			want(t, "token", fmt.Sprint(strings.TrimPrefix(text, secretText+" default/ "), " ", err), wanted)
		}
		check(0, "1 <nil>")
		check(479*time.Second, "1 <nil>")
		tokens.err = errors.New("no connection")
		check(120*time.Second, "1 <nil>")
		check(2*time.Second, " making it: no connection")
		tokens.err = nil
		check(0, "2 <nil>")
		objects.ForgetTokens(pod.UID)
		check(0, "3 <nil>")
	})
}
