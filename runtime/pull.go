package runtime

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/image/credential"
	"github.com/runonce/runonce/runtime/podstate"
)

// defaultPulls is how many images are pulled at once unless the options say otherwise.
const defaultPulls = 4

// imageRef is an image as a pod asks for it.
type imageRef struct {
	name   string
	policy v1.PullPolicy
}

// foundImage is what is known of an image ahead of the Sync that needs it.
type foundImage struct {
	img  engine.Image
	err  error // of the pull
	used bool  // by the current Sync
}

// pull is an image as far as this process has pulled it, once for all pods that want it.
type pull struct {
	turn chan struct{} // holds a value while somebody pulls the image
	// The rest is guarded by Pods.mu.
	img         *engine.Image       // nil until it was pulled
	err         error               // of the last pull
	failures    int                 // pulls that have failed
	credentials []engine.Credential // of the last pull
}

// MissingImages returns a function that pulls the images which the next Sync of the pod would
// have to pull, nil if there are none. That Sync uses what the function has found, so that it
// does not ask the registry again after an error. The pod counts as started meanwhile.
func (p *Pods) MissingImages(ctx context.Context, pod *v1.Pod) func(ctx context.Context) {
	var missing []imageRef
	for _, ref := range p.nextImages(ctx, pod) {
		if _, known := p.foundImage(pod, ref, false); known {
			continue
		}
		switch img, wanted, err := p.lookForImage(ctx, ref); {
		case err != nil:
			// The Sync looks for it too, and returns the error.
		case wanted:
			missing = append(missing, ref)
		default:
			p.rememberImage(pod, ref, foundImage{img: img})
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return func(ctx context.Context) {
		if err := p.startRecord(ctx, pod); err != nil {
			return // as will the Sync, which returns it
		}
		_ = each(missing, func(ref imageRef) error {
			img, err := p.pullImage(ctx, pod, ref)
			if ctx.Err() == nil {
				p.rememberImage(pod, ref, foundImage{img: img, err: err})
			}
			return nil
		})
	}
}

// startRecord records that the pod is started, unless it is no longer this process's: its
// deadline runs while its images are pulled, as in the kubelet.
func (p *Pods) startRecord(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	known, err := p.o.Records.Load(pod.UID)
	if err == nil {
		err = p.o.Records.Owned(known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
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
		next = nil
		for _, start := range podstate.Decide(obs, time.Now()).Start {
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
		if v.Image != nil && (fresh || slices.ContainsFunc(next, func(c *v1.Container) bool { return mounts(c, v.Name) })) {
			add(imageRef{v.Image.Reference, v.Image.PullPolicy})
		}
	}
	return refs
}

// rememberImage keeps what was found for the next Sync.
func (p *Pods) rememberImage(pod *v1.Pod, ref imageRef, found foundImage) {
	p.remember(pod.UID, func(m *memory) { m.images[ref] = &found })
}

// foundImage returns what was found for the next Sync, and whether anything was. used says that
// this is that Sync.
func (p *Pods) foundImage(pod *v1.Pod, ref imageRef, used bool) (found foundImage, ok bool) {
	p.remember(pod.UID, func(m *memory) {
		if f := m.images[ref]; f != nil {
			f.used = f.used || used
			found, ok = *f, true
		}
	})
	return found, ok
}

// dropUsedImages forgets what a Sync has used: the next one looks again.
func (m *memory) dropUsedImages() {
	maps.DeleteFunc(m.images, func(_ imageRef, f *foundImage) bool { return f.used })
}

// ensureImage returns the image, pulled if its pull policy says so
// (pkg/kubelet/images/image_manager.go, EnsureImageExists).
func (p *Pods) ensureImage(ctx context.Context, pod *v1.Pod, name string, policy v1.PullPolicy) (engine.Image, error) {
	ref := imageRef{name, policy}
	if found, ok := p.foundImage(pod, ref, true); ok {
		return found.img, found.err
	}
	img, wanted, err := p.lookForImage(ctx, ref)
	if err == nil && !wanted {
		p.event(pod, eventPulled, "Container image %q already present on machine", name)
	}
	if err != nil || !wanted {
		return img, err
	}
	return p.pullImage(ctx, pod, ref)
}

// lookForImage returns the image if it is there, and says whether it has to be pulled.
func (p *Pods) lookForImage(ctx context.Context, ref imageRef) (img engine.Image, wanted bool, err error) {
	name, err := image.Normalize(ref.name)
	if err != nil {
		return engine.Image{}, false, err
	}
	if img, ok := p.pulled(name); ok {
		return img, false, nil
	}
	img, err = p.o.Engine.Image(ctx, name)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return engine.Image{}, false, err
	}
	local := slices.ContainsFunc(p.o.LocalImages, func(supplied string) bool { return image.Same(name, supplied, img.Digest) })
	action, err := image.Decide(image.Policy{Ref: ref.name, Pull: ref.policy, Mode: p.o.Pull, Present: err == nil, Local: local})
	return img, action != image.Use, err
}

// EnsureImage returns an image of the pod, pulled if its pull policy says so, and whether it was.
func (p *Pods) EnsureImage(ctx context.Context, pod *v1.Pod, name string, policy v1.PullPolicy) (img engine.Image, pulled bool, err error) {
	ref := imageRef{name, policy}
	img, wanted, err := p.lookForImage(ctx, ref)
	if err != nil || !wanted {
		return img, false, err
	}
	got, err := p.pullImage(ctx, pod, ref)
	return got, err == nil && (p.o.Pull != image.Newer || got.Digest != img.Digest), err
}

// ImageDigest returns the digest of an image of the pod: of the local one if it would be used, else
// of the one in the registry.
func (p *Pods) ImageDigest(ctx context.Context, pod *v1.Pod, name string, policy v1.PullPolicy) (string, error) {
	img, wanted, err := p.lookForImage(ctx, imageRef{name, policy})
	if err != nil || !wanted {
		return img.Digest, err
	}
	full, err := image.Normalize(name)
	if err != nil {
		return "", err
	}
	credentials, err := credential.OfSecrets(image.PullSecrets(p.o.Objects, pod), full)
	if err != nil {
		return "", err
	}
	digest, err := p.o.Engine.Resolve(ctx, full, credentials...)
	if err != nil && p.o.Pull == image.Newer && img.Digest != "" {
		return img.Digest, context.Cause(ctx)
	}
	return digest, err
}

// pullImage pulls the image, when no other pod does. It shares the error of a pull that this pod
// has waited for, if both have the same credentials.
func (p *Pods) pullImage(ctx context.Context, pod *v1.Pod, ref imageRef) (engine.Image, error) {
	name, err := image.Normalize(ref.name)
	if err != nil {
		return engine.Image{}, err
	}
	credentials, err := credential.OfSecrets(image.PullSecrets(p.o.Objects, pod), name)
	if err != nil {
		return engine.Image{}, err
	}
	known, failures := p.pullOf(name)
	release, err := enter(ctx, known.turn)
	if err != nil {
		return engine.Image{}, err
	}
	defer release()
	if img, ok, err := p.pulledSince(known, failures, credentials); ok {
		return img, err
	}
	release, err = enter(ctx, p.pullSlots)
	if err != nil {
		return engine.Image{}, err
	}
	defer release()
	img, err := p.fetchImage(ctx, pod, ref, credentials)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			known.err, known.credentials = err, credentials
			known.failures++
		}
		return engine.Image{}, err
	}
	known.img = &img
	return img, nil
}

// fetchImage pulls the image. With image.Newer it returns the local one if the registry has the same,
// or cannot be used, as podman does.
func (p *Pods) fetchImage(ctx context.Context, pod *v1.Pod, ref imageRef, credentials []engine.Credential) (img engine.Image, err error) {
	name, err := image.Normalize(ref.name)
	if err != nil {
		return engine.Image{}, err
	}
	local, present := engine.Image{}, false
	if p.o.Pull == image.Newer {
		local, err = p.o.Engine.Image(ctx, name)
		present = err == nil
	}
	if present {
		digest, err := p.o.Engine.Resolve(ctx, name, credentials...)
		if err != nil {
			p.o.Log.Warn("using the local image: the registry cannot be asked for a newer one", "image", ref.name, "error", err)
		}
		if err != nil || digest == local.Digest {
			return local, context.Cause(ctx)
		}
	}
	p.event(pod, eventPulling, "Pulling image %q", ref.name)
	begin := time.Now()
	err = p.traced(pod.UID, "pull "+ref.name, func() (err error) {
		img, err = p.o.Engine.Pull(ctx, name, credentials...)
		return err
	})
	if err == nil {
		p.event(pod, eventPulled, "Successfully pulled image %q in %s. Image size: %d bytes.", ref.name, time.Since(begin).Round(time.Millisecond), img.Size)
	}
	if err != nil && present && ctx.Err() == nil {
		p.o.Log.Warn("using the local image: the newer one cannot be pulled", "image", ref.name, "error", err)
		return local, nil
	}
	return img, err
}

// enter waits for a place in the channel and returns how to leave it.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pulledSince returns the result of a pull that has ended since there were so many failures.
func (p *Pods) pulledSince(known *pull, failures int, credentials []engine.Credential) (img engine.Image, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case known.img != nil:
		return *known.img, true, nil
	case known.failures > failures && slices.Equal(known.credentials, credentials):
		return engine.Image{}, true, known.err
	}
	return engine.Image{}, false, nil
}

// pulled returns the image if this process has pulled it.
func (p *Pods) pulled(name string) (engine.Image, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.pulls[name]; known != nil && known.img != nil {
		return *known.img, true
	}
	return engine.Image{}, false
}

// pullOf returns what is known of the pulls of an image, and how many have failed.
func (p *Pods) pullOf(name string) (known *pull, failures int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.pulls[name]
	if !ok {
		known = &pull{turn: make(chan struct{}, 1)}
		p.pulls[name] = known
	}
	return known, known.failures
}
