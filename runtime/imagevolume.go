package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// mountImages pulls and mounts the images that the container mounts as volumes
// (kuberuntime.getImageVolumes).
func (p *Pods) mountImages(ctx context.Context, pod *v1.Pod, c *v1.Container) error {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image == nil || !mounts(c, v.Name) {
			continue
		}
		if err := p.mountImage(ctx, pod, v); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	return nil
}

// pullUnmounted pulls, once, the images of volumes that no container mounts, as the kubelet
// does. One that cannot be pulled keeps no container from starting.
func (p *Pods) pullUnmounted(ctx context.Context, pod *v1.Pod) {
	if !p.once(pod.UID, func(m *memory) *bool { return &m.pulled }) {
		return
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mounted := slices.ContainsFunc(podspec.Containers(pod), func(c *v1.Container) bool { return mounts(c, v.Name) })
		if v.Image == nil || mounted {
			continue
		}
		if _, _, err := p.EnsureImage(ctx, pod, v.Image.Reference, v.Image.PullPolicy); err != nil {
			p.o.Log.WarnContext(ctx, "pulling the image of a volume that no container mounts", "pod", pod.Name, "volume", v.Name, "error", err)
		}
	}
}

func (p *Pods) mountImage(ctx context.Context, pod *v1.Pod, v *v1.Volume) error {
	img, _, err := p.EnsureImage(ctx, pod, v.Image.Reference, v.Image.PullPolicy)
	if err != nil {
		return err
	}
	dir, err := p.o.Volumes.ImageDir(pod, v)
	if err == nil {
		err = p.o.Engine.Mount(ctx, img.Ref, imageKey(pod, v), dir)
	}
	if err != nil {
		// k8s.io/cri-api ErrImageVolumeMountFailed
		return &failure.Error{Why: failure.ReasonCreateError, Err: fmt.Errorf("ImageVolumeMountFailed: %w", err)}
	}
	return nil
}

// declaredDir is the directory, in the pod's, of the volumes that images declare.
const declaredDir = "image-volumes"

// addDeclared adds the mounts of the volumes that the image declares, and that the pod mounts nothing
// on. As under CRI runtimes, each instance of a container has new ones with the content of the image,
// which can be written to also if its root cannot (volumeMounts and WithVolumes of containerd's CRI
// plugin).
func (p *Pods) addDeclared(ctx context.Context, pod *v1.Pod, c *v1.Container, img engine.Image, all []specs.Mount) ([]specs.Mount, error) {
	if len(img.Volumes) == 0 {
		return all, nil
	}
	own := filepath.Join(p.o.Records.Dir(pod.UID), declaredDir, c.Name)
	if err := os.RemoveAll(own); err != nil { // of the instance before
		return nil, fmt.Errorf("removing old volumes of the image: %w", err)
	}
	dirs := map[string]string{}
	for i, target := range img.Volumes {
		if slices.ContainsFunc(all, func(m specs.Mount) bool { return filepath.Clean(m.Destination) == target }) {
			continue
		}
		dirs[target] = filepath.Join(own, strconv.Itoa(i))
		if err := os.MkdirAll(dirs[target], 0o755); err != nil {
			return nil, fmt.Errorf("making a volume of the image: %w", err)
		}
		all = append(all, bind(target, dirs[target], "rw"))
	}
	if len(dirs) == 0 {
		return all, nil
	}
	return all, p.o.Engine.CopyFromImage(ctx, img.Ref, dirs)
}

// releaseImages releases the images of the pod's volumes, which are unmounted by then.
func (p *Pods) releaseImages(ctx context.Context, pod *v1.Pod) error {
	var errs []error
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image != nil {
			errs = append(errs, p.o.Engine.Release(ctx, imageKey(pod, v)))
		}
	}
	return errors.Join(errs...)
}

func imageKey(pod *v1.Pod, v *v1.Volume) string { return "volume-" + string(pod.UID) + "-" + v.Name }

func mounts(c *v1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
}
