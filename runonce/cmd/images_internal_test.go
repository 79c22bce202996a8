package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/image"
)

func TestImagesToPull(t *testing.T) {
	t.Parallel()
	pod := func(policy v1.PullPolicy, images ...string) *v1.Pod {
		p := &v1.Pod{}
		for _, i := range images {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Image: i, ImagePullPolicy: policy})
		}
		return p
	}
	plan := admit.Plan{Decisions: []admit.Decision{
		{Verdict: admit.Admitted, Pod: pod(v1.PullIfNotPresent, "here:1", "gone:1", "gone:1")},
		{Verdict: admit.Admitted, Pod: pod(v1.PullAlways, "here:2")},
		{Verdict: admit.Admitted, Pod: &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "here:1", PullPolicy: v1.PullIfNotPresent}}},
			{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "model:1", PullPolicy: v1.PullIfNotPresent}}},
		}}}},
		{Verdict: admit.Admitted, Pod: pod(v1.PullNever, "never:1")},
		{Verdict: admit.Admitted, Running: true, Pod: pod(v1.PullAlways, "kept:1")},
		{Verdict: admit.Rejected, Pod: pod(v1.PullAlways, "rejected:1")},
	}}
	present := []backend.Image{{Ref: "docker.io/library/here:1", Size: 1}, {Ref: "docker.io/library/here:2", Size: 1}}
	want := []string{"docker.io/library/gone:1", "docker.io/library/here:2", "docker.io/library/model:1"}
	if diff := cmp.Diff(want, imagesToPull(plan, present, image.ByPolicy, nil)); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	want = []string{"docker.io/library/gone:1", "docker.io/library/model:1", "docker.io/library/never:1"}
	if diff := cmp.Diff(want, imagesToPull(plan, present, image.Missing, nil)); diff != "" {
		t.Errorf("--pull=missing (-want +got):\n%s", diff)
	}
	want = []string{"docker.io/library/gone:1", "docker.io/library/model:1"}
	if diff := cmp.Diff(want, imagesToPull(plan, present, image.ByPolicy, []string{"docker.io/library/here:2"})); diff != "" {
		t.Errorf("--images-dir (-want +got):\n%s", diff)
	}
}

func TestImportError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		code int
	}{
		{errors.New("blob x is missing or corrupt"), report.ExitUsage},
		{fmt.Errorf("importing x: %w", errors.Join(containerd.ErrUnusable, syscall.ENOSPC)), report.ExitEngine},
	} {
		var coded exitError
		if err := importError(tt.err); !errors.As(err, &coded) || coded.code != tt.code || !errors.Is(err, tt.err) {
			t.Errorf("%v", err)
		}
	}
}

// TestDigestsInParallel: no more images are asked for at once than --parallel-pulls says.
func TestDigestsInParallel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		missing := map[string][]use{}
		for _, ref := range []string{"a", "b", "c"} {
			missing[ref] = []use{{}}
		}
		var now, most int
		begin := time.Now()
		_, err := (&fetchFlags{pulls: 1}).addDigests(t.Context(), manifests.ImageLock{Images: map[string]string{}}, missing,
			func(context.Context, *v1.Pod, podspec.Image) (string, error) {
				now++
				most = max(most, now)
				time.Sleep(time.Second)
				now--
				return "", nil
			})
		if err != nil || most != 1 || time.Since(begin) != 3*time.Second {
			t.Errorf("%v, %d at once, after %s", err, most, time.Since(begin))
		}
	})
}

// busy is the error of a registry that says when to come back.
type busy struct{ error }

// RetryDelay returns when that is.
func (busy) RetryDelay() time.Duration { return time.Minute }

// TestWithRetries: the next try comes when the schedule has it, and no sooner than the registry wants.
func TestWithRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin, tries := time.Now(), 0
		err := withRetries(t.Context(), runonce.Backoff{Delay: time.Second, Factor: 2, Retries: 3}, func() error {
			if tries++; tries == 2 {
				return busy{errors.New("too many requests")}
			}
			return errors.New("not yet")
		})
		if took := time.Since(begin); err == nil || tries != 4 || took != time.Second+time.Minute+4*time.Second {
			t.Errorf("%v after %d tries in %s", err, tries, took)
		}
	})
}

// TestNeeding: a bad archive matters to the images that it is known to have, also if the store has others of
// their names; and if nothing is known, to those that can come from nowhere else.
func TestNeeding(t *testing.T) {
	t.Parallel()
	pod := func(name, image string, pull v1.PullPolicy) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: image, ImagePullPolicy: pull}}}}
		p.Name = name
		return p
	}
	pods := []*v1.Pod{
		pod("here", "here:1", v1.PullNever), pod("gone", "gone:1", v1.PullNever), pod("pulled", "far:1", v1.PullIfNotPresent),
	}
	stored := []backend.Image{{Ref: "docker.io/library/here:1", Size: 1}}
	for _, tt := range []struct {
		name string
		refs []string
		mode image.Mode
		want []string
	}{
		{"unknown", nil, image.ByPolicy, []string{"gone"}},
		{"unknown, offline", nil, image.Never, []string{"gone", "pulled"}},
		{"others", []string{"docker.io/library/other:1"}, image.Never, nil},
		{"of a pod that can be pulled", []string{"docker.io/library/far:1"}, image.ByPolicy, []string{"pulled"}},
		{"another one is here", []string{"docker.io/library/here:1"}, image.ByPolicy, []string{"here"}},
	} {
		var got []string
		for _, f := range needing(pods, stored, backend.BadArchive{Refs: tt.refs, Err: errors.New("x.tar: torn")}, tt.mode) {
			got = append(got, f.Object.GetName())
			if f.Field != "spec.containers[0].image" || !strings.HasSuffix(f.Message, " cannot be imported: x.tar: torn") {
				t.Errorf("%s: %+v", tt.name, f)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
