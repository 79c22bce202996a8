package runtime

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/podstate"
)

// MissingImages returns a function that pulls the images which the next Sync of the pod would
// have to pull, nil if there are none. That Sync uses what the function has found, so that it
// does not ask the registry again after an error. The pod counts as started meanwhile.
func (p *Pods) MissingImages(ctx context.Context, pod *v1.Pod) func(ctx context.Context) {
	missing := p.images.missing(ctx, pod, p.nextImages(ctx, pod))
	if len(missing) == 0 {
		return nil
	}
	return func(ctx context.Context) {
		if err := p.startRecord(ctx, pod); err != nil {
			return // as will the Sync, which returns it
		}
		_ = each(missing, func(local localImage) error {
			p.images.pullAhead(ctx, pod, local)
			return nil
		})
	}
}

// PullAhead pulls the images that the pod needs and that are not there, one after the other. The pod does
// not count as started meanwhile, so that a later run does not take it for one that is, and its deadline
// does not run. Nothing is kept of errors: the first Sync asks the registry again.
func (p *Pods) PullAhead(ctx context.Context, pod *v1.Pod) {
	for _, ref := range p.nextImages(ctx, pod) {
		if err := p.images.prefetch(ctx, pod, ref); err != nil && ctx.Err() == nil {
			p.o.Log.Info("could not pull an image ahead of its pod", "pod", podspec.FullName(pod), "image", ref.name, "error", err)
		}
	}
}

// startRecord records that the pod is started, unless it is no longer this process's: its
// deadline runs while its images are pulled, as in the kubelet.
func (p *Pods) startRecord(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.lockOwned(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	_, err = p.recordStart(ctx, pod)
	return err
}

// nextImages returns the images of the containers that the next Sync would start, with those of
// the volumes that they mount. For a new pod that is all of its images, although the Sync starts
// only the first init container.
func (p *Pods) nextImages(ctx context.Context, pod *v1.Pod) []imageRef {
	next := podspec.Containers(pod)
	known, err := p.o.Engine.Containers(ctx, string(pod.UID))
	fresh := err == nil && len(known) == 0
	if !fresh {
		obs, err := p.observe(ctx, pod)
		if err != nil {
			return nil
		}
		pod, next = obs.Pod, nil
		todo := podstate.Decide(obs, time.Now())
		for _, start := range slices.Concat(todo.Ephemeral, todo.Start) {
			next = append(next, start.Container)
		}
	}
	var refs []imageRef
	add := func(ref imageRef) {
		if !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	for _, c := range next {
		add(imageRef{c.Image, c.ImagePullPolicy})
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image != nil && (fresh || slices.ContainsFunc(next, func(c *v1.Container) bool { return mountsVolume(c, v.Name) })) {
			add(imageRef{v.Image.Reference, v.Image.PullPolicy})
		}
	}
	return refs
}
