package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/image"
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

// pullAhead pulls what the pod misses and says whether there was anything.
func pullAhead(ctx context.Context, p *runtime.Pods, pod *v1.Pod) bool {
	pull := p.MissingImages(ctx, pod)
	if pull != nil {
		pull(ctx)
	}
	return pull != nil
}

// farPod is a pod whose image has to be pulled.
func farPod(name string) *v1.Pod {
	pod := testPod(v1.RestartPolicyAlways, "sleep")
	pod.Name, pod.UID = name, types.UID(name)
	pod.Spec.Containers[0].Image = "localhost/far:1"
	return pod
}

// TestPullAhead: the Sync after a pull uses what that has found, an error as well, and asks the
// registry again only at the next attempt.
func TestPullAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.engine.PullErrors = map[string][]error{"localhost/far:1": {errors.New("connection refused")}}
		p, ctx := n.pods(t.Context(), t), t.Context()
		pod := farPod("web")
		pod.Spec.Containers = append(pod.Spec.Containers, pod.Spec.Containers[0])
		pod.Spec.Containers[1].Name = "c1"
		pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: boxImage, Args: []string{"exit", "0"}, ImagePullPolicy: v1.PullIfNotPresent}}
		if !pullAhead(ctx, p, pod) {
			t.Error("no image was missing")
		}
		if err := p.Sync(ctx, pod); err != nil {
			t.Errorf("the init container needs no other image: %v", err)
		}
		synctest.Wait()
		if pullAhead(ctx, p, pod) {
			t.Error("the registry was asked again before the error was reported")
		}
		if err := p.Sync(ctx, pod); err == nil || strings.Count(err.Error(), "ErrImagePull: connection refused") != 2 {
			t.Errorf("the error of the pull: %v", err)
		}
		if !pullAhead(ctx, p, pod) {
			t.Error("the registry was not asked again")
		}
		if err := p.Sync(ctx, pod); err != nil {
			t.Error(err)
		}
		if pullAhead(ctx, p, pod) {
			t.Error("an image was missing of a pod that runs")
		}
		if diff := cmp.Diff([]string{"localhost/far:1", "localhost/far:1"}, n.engine.Pulls()); diff != "" {
			t.Errorf("pulls (-want +got):\n%s", diff)
		}
	})
}

// TestPullsTogether: pods share a pull and its error, and no more images are pulled at once than
// there may be.
func TestPullsTogether(t *testing.T) {
	for _, c := range []struct {
		name    string
		images  int
		err     error
		elapsed time.Duration
		pulls   int
	}{
		{"one image", 1, nil, time.Minute, 1},
		{"one image that cannot be pulled", 1, errors.New("connection refused"), time.Minute, 1},
		{"more images than pulls at once", 5, nil, 2 * time.Minute, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.engine.PullTakes = time.Minute
				if c.err != nil {
					n.engine.PullErrors = map[string][]error{"localhost/far:0": {c.err, c.err}}
				}
				p := n.pods(t.Context(), t)
				begin := time.Now()
				var all sync.WaitGroup
				for i := range c.images {
					ref := fmt.Sprintf("localhost/far:%d", i)
					n.engine.Registry[ref] = engine.Image{Ref: ref, ID: "sha256:2", Entrypoint: []string{"/bin/box"}}
				}
				for i := range 5 {
					pod := farPod(fmt.Sprint("p", i))
					pod.Spec.Containers[0].Image = fmt.Sprintf("localhost/far:%d", i%c.images)
					all.Go(func() {
						pullAhead(t.Context(), p, pod)
						if err := p.Sync(t.Context(), pod); !errors.Is(err, c.err) {
							t.Errorf("%s: %v", pod.Name, err)
						}
					})
				}
				all.Wait()
				if got := time.Since(begin); got != c.elapsed {
					t.Errorf("after %s, want %s", got, c.elapsed)
				}
				if got := len(n.engine.Pulls()); got != c.pulls {
					t.Errorf("%d pulls, want %d", got, c.pulls)
				}
			})
		})
	}
}

// What was pulled for a pod long ago does not count for another one: the registry may have another
// image by now, and the one that was pulled may have been removed.
func TestPullsOfLongAgo(t *testing.T) {
	const ref = "localhost/far:1"
	for _, tt := range []struct {
		name    string
		policy  v1.PullPolicy
		removed bool
		want    string
		pulls   int
	}{
		{"always", v1.PullAlways, false, "sha256:new", 2},
		{"if not present", v1.PullIfNotPresent, false, "sha256:2", 1},
		{"removed meanwhile", v1.PullIfNotPresent, true, "sha256:new", 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			p, ctx := n.pods(t.Context(), t), t.Context()
			start := func(pod *v1.Pod, want string) {
				t.Helper()
				pod.Spec.Containers[0].ImagePullPolicy = tt.policy
				pullAhead(ctx, p, pod)
				if err := p.Sync(ctx, pod); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				if st := wantStates(ctx, t, p, pod, "c0=running"); st.ContainerStatuses[0].ImageID != want {
					t.Errorf("%s: image %s, want %s", tt.name, st.ContainerStatuses[0].ImageID, want)
				}
			}
			before := farPod("before")
			start(before, "sha256:2")
			if err := p.Stop(ctx, before); err != nil {
				t.Fatal(err)
			}
			time.Sleep(24 * time.Hour)
			n.engine.Registry[ref] = engine.Image{Ref: ref, ID: "sha256:new", Entrypoint: []string{"/bin/box"}}
			if tt.removed {
				delete(n.engine.Store, ref)
			}
			start(farPod("after"), tt.want)
			if got := len(n.engine.Pulls()); got != tt.pulls {
				t.Errorf("%s: %d pulls, want %d", tt.name, got, tt.pulls)
			}
		})
	}
}

// TestPullCountsForTheDeadline: a pod is active while its images are pulled.
func TestPullCountsForTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.engine.PullTakes = time.Minute
		p, pod := n.pods(t.Context(), t), farPod("web")
		pod.Spec.ActiveDeadlineSeconds = new(int64(30))
		pullAhead(t.Context(), p, pod)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Error(err)
		}
		st, err := p.Status(t.Context(), pod)
		if err != nil || st.Reason != "DeadlineExceeded" {
			t.Errorf("reason %q, %v", st.Reason, err)
		}
	})
}

// TestPullNewer: a present image is pulled when the registry has another one, and used when the
// registry cannot be asked or the pull fails.
func TestPullNewer(t *testing.T) {
	const ref = "localhost/far:1"
	for _, tt := range []struct {
		name                string
		registry, err       string
		local, want, pulled string
	}{
		{"absent", "sha256:new", "", "", "sha256:new", ref},
		{"same", "sha256:old", "", "sha256:old", "sha256:old", ""},
		{"other", "sha256:new", "", "sha256:old", "sha256:new", ref},
		{"no registry", "", "", "sha256:old", "sha256:old", ""},
		{"pull fails", "sha256:new", "broken pipe", "sha256:old", "sha256:old", ref},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.engine.Registry = map[string]engine.Image{}
			if tt.registry != "" {
				n.engine.Registry[ref] = engine.Image{Ref: ref, Digest: tt.registry}
			}
			if tt.err != "" {
				n.engine.PullErrors = map[string][]error{ref: {errors.New(tt.err)}}
			}
			if tt.local != "" {
				n.engine.Store[ref] = engine.Image{Ref: ref, Digest: tt.local}
			}
			n.pull = image.Newer
			p := n.pods(t.Context(), t)
			img, pulled, err := p.EnsureImage(t.Context(), farPod("web"), ref, v1.PullNever)
			if err != nil || img.Digest != tt.want || pulled != (tt.want == "sha256:new") {
				t.Errorf("%s: %+v, %v, %v", tt.name, img, pulled, err)
			}
			if got := strings.Join(n.engine.Pulls(), " "); got != tt.pulled {
				t.Errorf("%s: pulled %q", tt.name, got)
			}
		})
	}
}

// TestPullAheadOfTurn: the images of a pod that may not start yet are pulled, once, and the pod counts as not
// started. A pull that has failed is tried again by its Sync.
func TestPullAheadOfTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := farPod("far")
		n.engine.PullErrors = map[string][]error{"localhost/far:1": {errors.New("no route")}}
		p.PullAhead(t.Context(), pod)
		p.PullAhead(t.Context(), pod)
		p.PullAhead(t.Context(), pod)
		if pods, err := p.List(t.Context()); err != nil || len(pods) > 0 {
			t.Errorf("pods %v, %v", pods, err)
		}
		if pullAhead(t.Context(), p, pod) {
			t.Error("pulled twice")
		}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Error(err)
		}
		wantStates(t.Context(), t, p, pod, "c0=running")
	})
}

// TestNewestDigest: the registry says which digest an image has, to a pod with the credentials, unless the user has
// preloaded the image.
func TestNewestDigest(t *testing.T) {
	t.Parallel()
	const ref = "localhost/far:1"
	login := enginetest.Objects{Secrets: map[string]*v1.Secret{
		"default/login": {Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {"localhost": {"username": "me", "password": "pw"}}}`)}},
	}}
	for _, tc := range []struct {
		name, ref     string
		stored        string // digest
		preloaded     []string
		objects       enginetest.Objects
		withdrawn     bool
		newest, local string
		fails         string
	}{
		{name: "not here", ref: ref, objects: login, newest: "sha256:new"},
		{name: "another one here", ref: ref, objects: login, stored: "sha256:old", newest: "sha256:new", local: "sha256:old"},
		{name: "preloaded", ref: ref, stored: "sha256:old", preloaded: []string{ref}, newest: "sha256:old", local: "sha256:old"},
		{name: "preloaded and lost", ref: ref, objects: login, preloaded: []string{ref}, newest: "sha256:new"},
		{name: "no credentials", ref: ref, stored: "sha256:old", local: "sha256:old", fails: "401 Unauthorized"},
		{name: "no answer", ref: ref, objects: login, withdrawn: true, stored: "sha256:old", local: "sha256:old", fails: "no such image"},
		{name: "no reference", ref: "A:B:C", fails: "invalid reference"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.engine.Users = map[string]engine.Credential{ref: {User: "me", Password: "pw"}}
				if n.engine.Push(ref, engine.Image{Digest: "sha256:new"}); tc.withdrawn {
					n.engine.Withdraw(ref)
				}
				if tc.stored != "" {
					n.engine.Store[ref] = engine.Image{Ref: ref, Digest: tc.stored}
				}
				p := n.pods(t.Context(), t)
				p.SetPreloaded(tc.preloaded)
				pod := farPod("web")
				pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "login"}}
				newest, local, err := p.NewestDigest(t.Context(), tc.objects, pod, tc.ref)
				if newest != tc.newest || local != tc.local {
					t.Errorf("newest %q, local %q, want %q and %q", newest, local, tc.newest, tc.local)
				}
				if (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("error %v, want %q", err, tc.fails)
				}
			})
		})
	}
}
