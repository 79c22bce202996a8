package runtime_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/runtime"
)

// TestEviction: a pod whose storage exceeds its limit has failed in the next status of the process
// that syncs it, and the next Sync ends it for good; a process that only lists it does not see that.
func TestEviction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, other := n.pods(t.Context(), t), n.pods(t.Context(), t)
		limit := resource.MustParse("64Ki")
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Volumes = []v1.Volume{{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		wantStates(t.Context(), t, p, pod, "c0=running")
		file := filepath.Join(n.root, "pods", string(pod.UID), "volumes", "kubernetes.io~empty-dir", "work", "file")
		if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s := wantStates(t.Context(), t, other, pod, "c0=running"); s.Phase != v1.PodRunning {
			t.Errorf("who only looks sees %s", s.Phase)
		}
		s, err := p.Status(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		if want := `Usage of EmptyDir volume "work" exceeds the limit "64Ki". `; s.Phase != v1.PodFailed || s.Reason != "Evicted" || s.Message != want {
			t.Errorf("%s, %s: %s", s.Phase, s.Reason, s.Message)
		}
		wantStates(t.Context(), t, other, pod, "c0=running") // a look has no effect
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if s := wantStates(t.Context(), t, n.pods(t.Context(), t), pod, "c0=exit143"); s.Reason != "Evicted" {
			t.Errorf("later it is %s, %s", s.Phase, s.Reason)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.left(t)
	})
}

// TestEvictionByAnotherProcess: of two processes that sync a pod one ends it, and the other does
// not start it again.
func TestEvictionByAnotherProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p, other := n.pods(t.Context(), t), n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
		for _, each := range []*runtime.Pods{p, other} {
			if err := each.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			wantStates(t.Context(), t, each, pod, "c0=running")
		}
		n.engine.Layers = map[string]int64{"c0": 1 << 21}
		time.Sleep(10 * time.Second)
		for _, each := range []*runtime.Pods{p, other} {
			if s := wantStates(t.Context(), t, each, pod, "c0=running"); s.Reason != "Evicted" {
				t.Errorf("before it is ended: %s, %s", s.Phase, s.Reason)
			}
		}
		var wg sync.WaitGroup
		for _, each := range []*runtime.Pods{p, other} {
			wg.Go(func() {
				if err := each.Sync(t.Context(), pod); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, each := range []*runtime.Pods{p, other, n.pods(t.Context(), t)} {
			s := wantStates(t.Context(), t, each, pod, "c0=exit143")
			if s.Phase != v1.PodFailed || s.Reason != "Evicted" || s.ContainerStatuses[0].RestartCount != 0 {
				t.Errorf("%s, %s, %d restarts", s.Phase, s.Reason, s.ContainerStatuses[0].RestartCount)
			}
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.left(t)
	})
}

// TestEvictionByLayer: what a container writes to its own layer counts as well.
func TestEvictionByLayer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep", "sleep")
		pod.Spec.Containers[1].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
		n.engine.Layers = map[string]int64{"c0": 1 << 10, "c1": 1 << 20}
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		s, err := p.Status(t.Context(), pod)
		if want := `Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. `; err != nil || s.Message != want {
			t.Errorf("%v, %s: %s", err, s.Reason, s.Message)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	})
}
