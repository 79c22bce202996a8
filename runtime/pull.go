package runtime

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// defaultPulls is how many images are pulled at once unless the options say otherwise.
const defaultPulls = 4

// imagePuller finds the images of pods, and pulls those that are missing, each once for all pods that
// want it at that time. It is safe for concurrent use.
type imagePuller struct {
	o      *Options
	events *recorder

	slots chan struct{} // holds a value for each image that is being pulled
	ahead chan struct{} // and for each of a pod that is not to be started yet

	mu        sync.Mutex        // guards the rest
	preloaded []string          // by the user: not pulled, whatever the pull policy says
	pulls     map[string]*pulls // by normalised reference
	pods      map[types.UID]*podImages
}

func newImagePuller(o *Options, events *recorder) *imagePuller {
	n := cmp.Or(o.ParallelPulls, defaultPulls)
	return &imagePuller{
		o: o, events: events, slots: make(chan struct{}, n), ahead: make(chan struct{}, max(1, n-1)),
		pulls: map[string]*pulls{}, pods: map[types.UID]*podImages{},
	}
}

// podImages is what is known of the images of a pod.
type podImages struct {
	since time.Time // when the pod was first seen: what was pulled before may be out of date
	found map[imageRef]*foundImage
}

// pulls are those of an image by this process, each for all pods that want it at that time.
type pulls struct {
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

// imageRef is an image as a pod asks for it.
type imageRef struct {
	name   string
	policy v1.PullPolicy
}

// foundImage is what is known of an image ahead of the Sync that needs it.
type foundImage struct {
	img    engine.Image
	err    error // of the pull
	pulled bool
	used   bool // by the current Sync
}

// of returns what is known of the pod's images. The caller holds the lock.
func (i *imagePuller) of(uid types.UID) *podImages {
	known, ok := i.pods[uid]
	if !ok {
		known = &podImages{since: time.Now(), found: map[imageRef]*foundImage{}}
		i.pods[uid] = known
	}
	return known
}

// pullsOf returns the pulls of an image. The caller holds the lock.
func (i *imagePuller) pullsOf(name string) *pulls {
	known, ok := i.pulls[name]
	if !ok {
		known = &pulls{turn: make(chan struct{}, 1)}
		i.pulls[name] = known
	}
	return known
}

// see says that what is pulled from now on is for this pod, too.
func (i *imagePuller) see(uid types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of(uid)
}

// forget forgets the pod. What was pulled before it is seen again may be out of date then.
func (i *imagePuller) forget(uid types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.pods, uid)
}

// setPreloaded says which images, by normalised reference, the user has preloaded.
func (i *imagePuller) setPreloaded(images []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.preloaded = images
}

// keep keeps what was found for the next Sync.
func (i *imagePuller) keep(uid types.UID, ref imageRef, found foundImage) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of(uid).found[ref] = &found
}

// use returns what was found for the next Sync, which is this one, and whether anything was. It has not been used yet
// if this is the first container that needs it.
func (i *imagePuller) use(uid types.UID, ref imageRef) (found foundImage, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f, ok := i.of(uid).found[ref]
	if !ok {
		return foundImage{}, false
	}
	found = *f
	f.used = true
	return found, true
}

// dropUsed forgets what a Sync has used: the next one looks again.
func (i *imagePuller) dropUsed(uid types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.of(uid).found, func(_ imageRef, f *foundImage) bool { return f.used })
}

// missing returns those of the images that have to be pulled. Of the others it keeps what it has found.
func (i *imagePuller) missing(ctx context.Context, pod *v1.Pod, refs []imageRef) (missing []localImage) {
	for _, ref := range refs {
		if i.knows(pod.UID, ref) {
			continue
		}
		switch found, err := i.look(ctx, pod.UID, ref); {
		case err != nil:
			// The Sync looks for it too, and returns the error.
		case found.action != image.Use:
			missing = append(missing, found)
		default:
			i.keep(pod.UID, ref, foundImage{img: found.Image})
		}
	}
	return missing
}

func (i *imagePuller) knows(uid types.UID, ref imageRef) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.of(uid).found[ref] != nil
}

// pullAhead pulls an image for the next Sync of the pod.
func (i *imagePuller) pullAhead(ctx context.Context, pod *v1.Pod, local localImage) {
	img, err := i.pull(ctx, pod, local)
	if ctx.Err() == nil {
		i.keep(pod.UID, local.ref, foundImage{img: img, err: err, pulled: true})
	}
}

// prefetch pulls an image, if that is missing, for a pod that is not to be started yet. One place is left for
// the images of pods that are.
func (i *imagePuller) prefetch(ctx context.Context, pod *v1.Pod, ref imageRef) error {
	local, err := i.look(ctx, pod.UID, ref)
	if err != nil || local.action == image.Use {
		return err
	}
	leave, err := enter(ctx, i.ahead)
	if err != nil {
		return err
	}
	defer leave()
	_, err = i.pull(ctx, pod, local)
	return err
}

// ensure returns an image of the pod, pulled if its pull policy says so
// (pkg/kubelet/images/image_manager.go, EnsureImageExists), and whether it was.
func (i *imagePuller) ensure(ctx context.Context, pod *v1.Pod, ref imageRef) (img engine.Image, pulled bool, err error) {
	if found, ok := i.use(pod.UID, ref); ok {
		if !found.pulled && !found.used {
			i.present(pod, ref)
		}
		return found.img, false, found.err
	}
	local, err := i.look(ctx, pod.UID, ref)
	if err != nil {
		return engine.Image{}, false, err
	}
	if local.action == image.Use {
		i.present(pod, ref)
		return local.Image, false, nil
	}
	img, err = i.pull(ctx, pod, local)
	return img, err == nil && (local.action == image.Pull || img.Digest != local.Digest), err
}

// present reports that the image is there.
func (i *imagePuller) present(pod *v1.Pod, ref imageRef) {
	i.events.add(pod, "", eventPulled, "Container image %q already present on machine", ref.name)
}

// localImage is an image as far as it is in the store.
type localImage struct {
	engine.Image // the zero value if it is not there
	ref          imageRef
	name         string       // normalised
	action       image.Action // to get it
	pulls        *pulls
	seen         *pulledImage // the last pull before it was looked for
}

// look looks for an image of the pod in the store, and decides whether it has to be pulled.
func (i *imagePuller) look(ctx context.Context, uid types.UID, ref imageRef) (localImage, error) {
	found := localImage{ref: ref, action: image.Use}
	var err error
	if found.name, err = image.Normalize(ref.name); err != nil {
		return found, err
	}
	i.mu.Lock()
	since := i.of(uid).since
	found.pulls = i.pullsOf(found.name)
	i.mu.Unlock()
	found.seen = found.pulls.last.Load()
	found.Image, err = i.o.Engine.Image(ctx, found.name)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return found, err
	}
	if err == nil && found.seen != nil && !found.seen.at.Before(since) {
		return found, nil
	}
	policy := image.Policy{Ref: ref.name, Pull: ref.policy, Mode: i.o.Pull, Present: err == nil, Local: i.isPreloaded(found.name, found.Digest)}
	if other := new(engine.PlatformError); errors.As(err, &other) {
		policy.Absent = other
	}
	found.action, err = image.Decide(policy)
	return found, err
}

// digest returns the digest of an image of the pod: of the local one if it would be used, else of the
// one in the registry.
func (i *imagePuller) digest(ctx context.Context, pod *v1.Pod, ref imageRef) (string, error) {
	local, err := i.look(ctx, pod.UID, ref)
	if err != nil || local.action == image.Use {
		return local.Digest, err
	}
	credentials, err := image.PodCredentials(i.o.Objects, pod, local.name)
	if err != nil {
		return "", err
	}
	digest, err := i.o.Engine.Resolve(ctx, local.name, credentials...)
	if err != nil && local.action == image.PullNewer {
		return local.Digest, context.Cause(ctx)
	}
	return digest, err
}

// newest returns what Pods.NewestDigest does.
func (i *imagePuller) newest(ctx context.Context, objects podspec.Objects, pod *v1.Pod, ref string) (newest, local string, err error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return "", "", err
	}
	found, err := i.o.Engine.Image(ctx, name)
	if err != nil && !errors.Is(err, engine.ErrNotFound) {
		return "", "", err
	}
	if err == nil && i.isPreloaded(name, found.Digest) {
		return found.Digest, found.Digest, nil
	}
	credentials, err := image.PodCredentials(objects, pod, name)
	if err == nil {
		newest, err = i.o.Engine.Resolve(ctx, name, credentials...)
	}
	return newest, found.Digest, err
}

// isPreloaded says whether the user has preloaded the local image with this digest.
func (i *imagePuller) isPreloaded(name, digest string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.ContainsFunc(i.preloaded, func(own string) bool { return image.Same(name, own, digest) })
}

// pull pulls the image, when no other pod does. It shares the result of a pull that this pod
// has waited for, an error only if both have the same credentials.
func (i *imagePuller) pull(ctx context.Context, pod *v1.Pod, local localImage) (engine.Image, error) {
	credentials, err := image.PodCredentials(i.o.Objects, pod, local.name)
	if err != nil {
		return engine.Image{}, err
	}
	known := local.pulls
	failures := known.failures.Load()
	leave, err := enter(ctx, known.turn)
	if err != nil {
		return engine.Image{}, err
	}
	defer leave()
	if last := known.last.Load(); last != local.seen {
		i.present(pod, local.ref)
		return last.Image, nil
	}
	if known.failures.Load() > failures && slices.Equal(known.credentials, credentials) {
		return engine.Image{}, known.err
	}
	leave, err = enter(ctx, i.slots)
	if err != nil {
		return engine.Image{}, err
	}
	defer leave()
	img, err := i.fetch(ctx, pod, local, credentials)
	switch {
	case err == nil:
		known.last.Store(&pulledImage{img, time.Now()})
	case ctx.Err() == nil:
		known.err, known.credentials = err, credentials
		known.failures.Add(1)
	}
	return img, err
}

// fetch pulls the image. With image.PullNewer it returns the local one if the registry has the
// same, or cannot be used, as podman does.
func (i *imagePuller) fetch(ctx context.Context, pod *v1.Pod, local localImage, credentials []engine.Credential) (img engine.Image, err error) {
	name, newer := local.ref.name, local.action == image.PullNewer
	if newer {
		digest, err := i.o.Engine.Resolve(ctx, local.name, credentials...)
		if err != nil {
			i.o.Log.Warn("could not ask the registry for a newer image; using the local one", "image", name, "error", err)
		}
		if err != nil || digest == local.Digest {
			return local.Image, context.Cause(ctx)
		}
	}
	i.events.add(pod, "", eventPulling, "Pulling image %q", name)
	begin := time.Now()
	err = i.o.traced(pod.UID, "pull "+name, func() (err error) {
		i.makeRoom(ctx, false)
		img, err = i.o.Engine.Pull(ctx, local.name, credentials...)
		if errors.Is(err, syscall.ENOSPC) && i.makeRoom(ctx, true) {
			img, err = i.o.Engine.Pull(ctx, local.name, credentials...)
		}
		return err
	})
	if err == nil {
		i.events.add(pod, "", eventPulled, "Successfully pulled image %q in %s. Image size: %d bytes.", name, time.Since(begin).Round(time.Millisecond), img.Size)
	}
	if err != nil && newer && ctx.Err() == nil {
		i.o.Log.Warn("could not pull the newer image; using the local one", "image", name, "error", err)
		return local.Image, nil
	}
	return img, err
}

// makeRoom calls MakeRoom.
func (i *imagePuller) makeRoom(ctx context.Context, full bool) bool {
	return i.o.MakeRoom != nil && i.o.MakeRoom(ctx, full)
}
