package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// SetPreloaded says which images, by normalised reference, the user has preloaded: they are not pulled,
// whatever the pull policy says.
func (p *Pods) SetPreloaded(images []string) { p.images.setPreloaded(images) }

// EnsureImage returns an image of the pod, pulled if its pull policy says so, and whether it was.
func (p *Pods) EnsureImage(ctx context.Context, pod *v1.Pod, name string, policy v1.PullPolicy) (img engine.Image, pulled bool, err error) {
	return p.images.ensure(ctx, pod, imageRef{name, policy})
}

// ImageDigest returns the digest of an image of the pod: of the local one if it would be used, else
// of the one in the registry.
func (p *Pods) ImageDigest(ctx context.Context, pod *v1.Pod, name string, policy v1.PullPolicy) (string, error) {
	return p.images.digest(ctx, pod, imageRef{name, policy})
}

// NewestDigest returns the digest that an image of the pod has in its registry, or here if the user has preloaded it, and
// the one of the local image, also with an error of the registry; "" if there is none. The pod refers to the objects.
func (p *Pods) NewestDigest(ctx context.Context, objects podspec.Objects, pod *v1.Pod, name string) (newest, local string, err error) {
	return p.images.newest(ctx, objects, pod, name)
}

// containerImages returns the image of the container, pulled if need be, and pulls and mounts those that
// it mounts as volumes (kuberuntime.getImageVolumes).
func (p *Pods) containerImages(ctx context.Context, pod *v1.Pod, c *v1.Container) (img engine.Image, err error) {
	err = p.o.traced(pod.UID, "image "+c.Name, func() (err error) {
		img, _, err = p.images.ensure(ctx, pod, imageRef{c.Image, c.ImagePullPolicy})
		return err
	})
	if err != nil {
		return img, err
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image == nil || !mountsVolume(c, v.Name) {
			continue
		}
		if err := p.mountImage(ctx, pod, v); err != nil {
			return img, fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	return img, nil
}

// pullUnmounted pulls, once, the images of volumes that no container mounts, as the kubelet
// does. One that cannot be pulled keeps no container from starting.
func (p *Pods) pullUnmounted(ctx context.Context, pod *v1.Pod) {
	if !p.once(pod.UID, func(m *memory) *bool { return &m.pulled }) {
		return
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mounted := slices.ContainsFunc(podspec.AllContainers(pod), func(c *v1.Container) bool { return mountsVolume(c, v.Name) })
		if v.Image == nil || mounted {
			continue
		}
		if _, _, err := p.images.ensure(ctx, pod, imageRef{v.Image.Reference, v.Image.PullPolicy}); err != nil {
			p.o.Log.WarnContext(ctx, "could not pull the image of a volume that no container mounts", "pod", pod.Name, "volume", v.Name, "error", err)
		}
	}
}

func (p *Pods) mountImage(ctx context.Context, pod *v1.Pod, v *v1.Volume) error {
	img, _, err := p.images.ensure(ctx, pod, imageRef{v.Image.Reference, v.Image.PullPolicy})
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

func mountsVolume(c *v1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
}
