package runtime_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// TestImageVolumes: an image is mounted when a container that mounts it is started, its errors
// are that container's, and Stop releases it.
func TestImageVolumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep", "sleep")
		image := func(name, ref string, policy v1.PullPolicy) v1.Volume {
			return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: ref, PullPolicy: policy}}}
		}
		pod.Spec.Volumes = []v1.Volume{
			image("here", boxImage, v1.PullIfNotPresent), image("gone", "localhost/gone:1", v1.PullNever),
			image("unused", "localhost/gone:1", v1.PullAlways), image("idle", "localhost/far:1", v1.PullIfNotPresent),
		}
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "here", MountPath: "/here"}}
		pod.Spec.Containers[1].VolumeMounts = []v1.VolumeMount{{Name: "here", MountPath: "/here"}, {Name: "gone", MountPath: "/gone"}}
		err := p.Sync(t.Context(), pod)
		var sync *runtime.SyncError
		if !errors.As(err, &sync) || !strings.HasPrefix(err.Error(), `container "c1": ErrImageNeverPull: `) || !sync.Permanent() || len(sync.Errors) != 1 {
			t.Errorf("a missing image: %v", err)
		}
		if d := cmp.Diff([]string{boxImage}, n.engine.Mounted()); d != "" {
			t.Error(d)
		}
		wantStates(t.Context(), t, p, pod, "c0=running", "c1=waiting ErrImageNeverPull")
		// What no container mounts is pulled, too, and an error does not matter.
		if _, err := n.engine.Image(t.Context(), "localhost/far:1"); err != nil {
			t.Errorf("an image that no container mounts: %v", err)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if left := n.engine.Mounted(); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
		n.left(t)
	})
}

// starts notes what containers are started with, and gives the directories of images a file.
type starts struct {
	*enginetest.Engine
	all []engine.ContainerConfig
}

func (e *starts) Start(ctx context.Context, c engine.ContainerConfig) error {
	e.all = append(e.all, c)
	return e.Engine.Start(ctx, c)
}

func (e *starts) CopyFromImage(_ context.Context, _ string, dirs map[string]string) error {
	for path, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "of-image"), []byte(path), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// TestDeclaredVolumes: each instance of a container has its own volumes where its image declares
// them, with the content of the image, and can write to them; but not where the pod mounts its own.
func TestDeclaredVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		img := n.engine.Store[boxImage]
		img.Volumes = []string{"/cache", "/data"}
		n.engine.Store[boxImage] = img
		e := &starts{Engine: n.engine}
		p := n.podsOn(t.Context(), t, e)
		pod := testPod(v1.RestartPolicyAlways, "exit 1")
		c := &pod.Spec.Containers[0]
		c.SecurityContext = &v1.SecurityContext{ReadOnlyRootFilesystem: new(true)}
		pod.Spec.Volumes = []v1.Volume{{Name: "own", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		c.VolumeMounts = []v1.VolumeMount{{Name: "own", MountPath: "/cache/"}}
		for i := range 2 {
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			var files []string
			for _, m := range e.all[i].Spec.Mounts {
				if text, err := os.ReadFile(filepath.Join(m.Source, "of-image")); err == nil {
					files = append(files, m.Destination+" "+string(text)+" "+m.Options[len(m.Options)-1])
				}
				if _, err := os.Stat(filepath.Join(m.Source, "left")); err == nil {
					t.Errorf("%s has what the instance before has written", m.Destination)
				}
				if m.Destination == "/data" {
					if err := os.WriteFile(filepath.Join(m.Source, "left"), nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			if d := cmp.Diff([]string{"/data /data rw"}, files); d != "" {
				t.Error(d)
			}
			synctest.Wait()
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		n.left(t)
	})
}
