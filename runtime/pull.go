package runtime

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
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

// pull is an image as far as this process has pulled it, once for all pods that want it at that time.
type pull struct {
	turn     chan struct{}               // holds a value while somebody pulls the image
	last     atomic.Pointer[pulledImage] // nil until it was pulled
	failures atomic.Int64                // pulls that have failed
	// The error and the credentials of the last of them belong to whoever has the turn.
	err         error
	credentials []engine.Credential
}

// pulledImage is an image and when it was pulled.
type pulledImage struct {
	engine.Image
	at time.Time
}

// isFor says whether the image was pulled since this process has begun to work on the pod.
func (i *pulledImage) isFor(p *Pods, uid types.UID) (is bool) {
	if i != nil {
		p.remember(uid, func(m *memory) { is = !i.at.Before(m.since) })
	}
	return is
}

// MissingImages returns a function that pulls the images which the next Sync of the pod would
// have to pull, nil if there are none. That Sync uses what the function has found, so that it
// does not ask the registry again after an error. The pod counts as started meanwhile.
func (p *Pods) MissingImages(ctx context.Context, pod *v1.Pod) func(ctx context.Context) {
	var missing []localImage
	for _, ref := range p.nextImages(ctx, pod) {
		if _, known := p.foundImage(pod, ref, false); known {
			continue
		}
		switch found, err := p.lookForImage(ctx, pod.UID, ref); {
		case err != nil:
			// The Sync looks for it too, and returns the error.
		case found.action != image.Use:
			missing = append(missing, found)
		default:
			p.rememberImage(pod, ref, foundImage{img: found.Image})
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return func(ctx context.Context) {
		if err := p.startRecord(ctx, pod); err != nil {
			return // as will the Sync, which returns it
		}
		_ = each(missing, func(local localImage) error {
			img, err := p.pullImage(ctx, pod, local)
			if ctx.Err() == nil {
				p.rememberImage(pod, local.ref, foundImage{img: img, err: err})
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

// EnsureImage returns an image of the pod, pulled if its pull policy says so
// (pkg/kubelet/images/image_manager.go, EnsureImageExists), and whether it was.
func (p *Pods) EnsureImage(ctx context.Context, pod *v1.Pod, name string, policy v1.PullPolicy) (img engine.Image, pulled bool, err error) {
	ref := imageRef{name, policy}
	if found, ok := p.foundImage(pod, ref, true); ok {
		return found.img, false, found.err
	}
	local, err := p.lookForImage(ctx, pod.UID, ref)
	if err != nil {
		return engine.Image{}, false, err
	}
	if local.action == image.Use {
		p.event(pod, eventPulled, "Container image %q already present on machine", name)
		return local.Image, false, nil
	}
	img, err = p.pullImage(ctx, pod, local)
	return img, err == nil && (local.action == image.Pull || img.Digest != local.Digest), err
}

// localImage is an image as far as it is in the store.
type localImage struct {
	engine.Image // the zero value if it is not there
	ref          imageRef
	name         string       // normalised
	action       image.Action // to get it
	seen         *pulledImage // the last pull before it was looked for
}

// lookForImage looks for an image of the pod in the store, and decides whether it has to be pulled.
func (p *Pods) lookForImage(ctx context.Context, uid types.UID, ref imageRef) (localImage, error) {
	found := localImage{ref: ref, action: image.Use}
	var err error
	if found.name, err = image.Normalize(ref.name); err != nil {
		return found, err
	}
	found.seen = p.pullOf(found.name).last.Load()
	found.Image, err = p.o.Engine.Image(ctx, found.name)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return found, err
	}
	if err == nil && found.seen.isFor(p, uid) {
		return found, nil
	}
	p.mu.Lock()
	supplied := p.supplied
	p.mu.Unlock()
	local := slices.ContainsFunc(supplied, func(name string) bool { return image.Same(found.name, name, found.Digest) })
	found.action, err = image.Decide(image.Policy{Ref: ref.name, Pull: ref.policy, Mode: p.o.Pull, Present: err == nil, Local: local})
	return found, err
}

// ImageDigest returns the digest of an image of the pod: of the local one if it would be used, else
// of the one in the registry.
func (p *Pods) ImageDigest(ctx context.Context, pod *v1.Pod, name string, policy v1.PullPolicy) (string, error) {
	local, err := p.lookForImage(ctx, pod.UID, imageRef{name, policy})
	if err != nil || local.action == image.Use {
		return local.Digest, err
	}
	credentials, err := p.credentials(pod, local.name)
	if err != nil {
		return "", err
	}
	digest, err := p.o.Engine.Resolve(ctx, local.name, credentials...)
	if err != nil && local.action == image.PullNewer {
		return local.Digest, context.Cause(ctx)
	}
	return digest, err
}

// credentials returns those that the pod's secrets have for an image.
func (p *Pods) credentials(pod *v1.Pod, name string) ([]engine.Credential, error) {
	return image.PodCredentials(p.o.Objects, pod, name)
}

// pullImage pulls the image, when no other pod does. It shares the result of a pull that this pod
// has waited for, an error only if both have the same credentials.
func (p *Pods) pullImage(ctx context.Context, pod *v1.Pod, local localImage) (engine.Image, error) {
	credentials, err := p.credentials(pod, local.name)
	if err != nil {
		return engine.Image{}, err
	}
	known := p.pullOf(local.name)
	failures := known.failures.Load()
	leave, err := enter(ctx, known.turn)
	if err != nil {
		return engine.Image{}, err
	}
	defer leave()
	if last := known.last.Load(); last != local.seen {
		return last.Image, nil
	}
	if known.failures.Load() > failures && slices.Equal(known.credentials, credentials) {
		return engine.Image{}, known.err
	}
	leave, err = enter(ctx, p.pullSlots)
	if err != nil {
		return engine.Image{}, err
	}
	defer leave()
	img, err := p.fetchImage(ctx, pod, local, credentials)
	switch {
	case err == nil:
		known.last.Store(&pulledImage{img, time.Now()})
	case ctx.Err() == nil:
		known.err, known.credentials = err, credentials
		known.failures.Add(1)
	}
	return img, err
}

// fetchImage pulls the image. With image.PullNewer it returns the local one if the registry has the
// same, or cannot be used, as podman does.
func (p *Pods) fetchImage(ctx context.Context, pod *v1.Pod, local localImage, credentials []engine.Credential) (img engine.Image, err error) {
	name, newer := local.ref.name, local.action == image.PullNewer
	if newer {
		digest, err := p.o.Engine.Resolve(ctx, local.name, credentials...)
		if err != nil {
			p.o.Log.Warn("using the local image: the registry cannot be asked for a newer one", "image", name, "error", err)
		}
		if err != nil || digest == local.Digest {
			return local.Image, context.Cause(ctx)
		}
	}
	p.event(pod, eventPulling, "Pulling image %q", name)
	begin := time.Now()
	err = p.traced(pod.UID, "pull "+name, func() (err error) {
		img, err = p.o.Engine.Pull(ctx, local.name, credentials...)
		return err
	})
	if err == nil {
		p.event(pod, eventPulled, "Successfully pulled image %q in %s. Image size: %d bytes.", name, time.Since(begin).Round(time.Millisecond), img.Size)
	}
	if err != nil && newer && ctx.Err() == nil {
		p.o.Log.Warn("using the local image: the newer one cannot be pulled", "image", name, "error", err)
		return local.Image, nil
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

// pullOf returns what is known of the pulls of an image.
func (p *Pods) pullOf(name string) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.pulls[name]
	if !ok {
		known = &pull{turn: make(chan struct{}, 1)}
		p.pulls[name] = known
	}
	return known
}
