package cmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/image"
)

const (
	// registryPatience is how long registries may take to say what they have. Those that have not by then are asked
	// again the next time.
	registryPatience = time.Minute
	// reasonImageChanged is the reason of pods that were replaced because a registry has another image.
	reasonImageChanged = "ImageChanged"
)

// imageWatchFlags say how often registries are asked for other images of the names that pods have.
type imageWatchFlags struct{ pullInterval time.Duration }

func (f *imageWatchFlags) flags() []cli.Flag {
	return []cli.Flag{&cli.DurationFlag{
		Name: "pull-interval", Destination: &f.pullInterval, Category: categoryImages, DefaultText: "never",
		Usage: "look for new images every `DURATION`",
	}}
}

// checkFor refuses an interval that means nothing with the other flags.
func (f *imageWatchFlags) checkFor(images *imageFlags) error {
	mode := image.Mode(images.pull)
	switch {
	case f.pullInterval == 0:
		return nil
	case mode != image.Newer && mode != image.Always:
		return usagef("--pull-interval looks for new images: it needs --pull=newer or --pull=always")
	case images.lock != "":
		return usagef("--pull-interval looks for new images: it cannot be used with --lock, which fixes them")
	}
	return nil
}

// imageChange is what has become of an image in its registry.
type imageChange struct{ ref, from, to string }

func (i imageChange) String() string {
	return fmt.Sprintf("image %q has changed from %s to %s", i.ref, i.from, i.to)
}

// imageWatch fixes the images of pods by the digests that their registries have, and looks now and then whether these
// have changed.
type imageWatch struct {
	interval time.Duration // 0 to fix and look for nothing
	pulls    int           // how many images are looked up at once
	// digests returns the digest that an image has in its registry, and that of the local one, "" for none.
	digests func(ctx context.Context, objects podspec.Objects, u use) (newest, local string, err error)
	warn    func(ref string, err error)
	found   chan []imageChange
	stale   atomic.Bool // all are to be looked up the next time

	mu    sync.Mutex
	known manifests.ImageLock    // "" for an image that was used by its tag, because its registry did not answer
	last  map[string]imageChange // by normalised reference
}

func (c *watchCommand) imageWatch() *imageWatch {
	w := &imageWatch{
		interval: c.pullInterval, pulls: c.pulls, found: make(chan []imageChange),
		known: manifests.ImageLock{Images: map[string]string{}}, last: map[string]imageChange{},
		digests: func(ctx context.Context, objects podspec.Objects, u use) (newest, local string, err error) {
			return c.target.pods.NewestDigest(ctx, objects, u.pod, *u.image.Ref)
		},
		warn: func(ref string, err error) {
			c.log.Warn("could not ask the registry for a newer image; nothing changes", "image", ref, "error", err)
		},
	}
	w.stale.Store(true) // other digests may be known from pods
	return w
}

// learn takes the digests for known that the pods have had until now. They stay if a registry does not answer.
func (w *imageWatch) learn(pods []*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range pods {
		maps.Copy(w.known.Images, digestsOf(pod))
	}
}

// digestsOf returns the digests of the images of a pod, by the references to which lockedRef has added them.
func digestsOf(pod *v1.Pod) map[string]string {
	all := map[string]string{}
	for _, i := range podspec.Images(pod) {
		if ref, digest, ok := strings.Cut(*i.Ref, "@"); ok {
			all[ref] = digest
		}
	}
	return all
}

// lookup is what look has found out about an image.
type lookup struct {
	newest, local string
	err           error
}

// look asks the registries for the digests of the images of the pods: of all that may change, or only of those that are
// not known. What a registry does not tell stays as it was. It returns what has changed.
func (w *imageWatch) look(ctx context.Context, set *manifests.Set, all bool) (changes []imageChange) {
	w.mu.Lock()
	before := manifests.ImageLock{Images: maps.Clone(w.known.Images)}
	w.mu.Unlock()
	known := before
	if all {
		known = manifests.ImageLock{}
	}
	uses := unlocked(only(set.Pods, isPulled), known)
	refs := slices.Sorted(maps.Keys(uses))
	found := w.ask(ctx, set, refs, uses)
	if ctx.Err() != nil {
		return nil // an interrupt is no answer
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, ref := range refs {
		if found[i].err != nil {
			w.warn(ref, found[i].err)
		}
		if w.known.Images[ref] != before.Images[ref] {
			continue // it was looked up meanwhile
		}
		if from := w.note(ref, found[i]); from != "" {
			w.last[ref] = imageChange{ref, from, found[i].newest}
			changes = append(changes, w.last[ref])
		}
	}
	return changes
}

// ask looks up images, with the credentials of the pods that use them.
func (w *imageWatch) ask(ctx context.Context, set *manifests.Set, refs []string, uses map[string][]use) []lookup {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	found := make([]lookup, len(refs))
	inParallel(refs, w.pulls, func(i int, ref string) error {
		f := &found[i]
		f.err = withUses(ctx, runonce.Backoff{}, uses[ref], func(u use) (err error) {
			f.newest, f.local, err = w.digests(ctx, set, u)
			return err
		})
		return f.err
	})
	return found
}

// note keeps what was found out about an image, and returns the digest that has been used until now, if that is another
// one. The caller holds the lock.
func (w *imageWatch) note(ref string, found lookup) (from string) {
	known, ok := w.known.Images[ref]
	switch from = cmp.Or(known, found.local); {
	case !ok:
		w.known.Images[ref] = cmp.Or(found.newest, found.local)
		return ""
	case found.err != nil || from == "" || from == found.newest:
		return "" // also if a pod that uses the tag has yet to get the image, which will be the newest
	}
	w.known.Images[ref] = found.newest
	return from
}

// isPulled says whether any image of the pod may be pulled.
func isPulled(pod *v1.Pod) bool {
	return slices.ContainsFunc(podspec.Images(pod), func(i podspec.Image) bool { return i.Policy != v1.PullNever })
}

// fix gives the images of the pods the digests that are known.
func (w *imageWatch) fix(set *manifests.Set) error {
	if w.interval == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range only(set.Pods, isPulled) {
		if err := set.SetImages(pod, func(ref string) string { return lockedRef(ref, w.known) }); err != nil {
			return badInput(err)
		}
	}
	return nil
}

// noteOn returns what to say about a pod that fix has given images which have changed, the zero value for nothing.
func (w *imageWatch) noteOn(pod *v1.Pod) runonce.Note {
	w.mu.Lock()
	defer w.mu.Unlock()
	var texts []string
	digests := digestsOf(pod)
	for _, ref := range slices.Sorted(maps.Keys(digests)) {
		if change, ok := w.last[ref]; ok && change.to == digests[ref] {
			texts = append(texts, change.String())
		}
	}
	if len(texts) == 0 {
		return runonce.Note{}
	}
	return runonce.Note{Reason: reasonImageChanged, Message: strings.Join(texts, "; ")}
}

// run looks for changes until ctx is done.
func (w *imageWatch) run(ctx context.Context, set func() *manifests.Set) {
	pause := runonce.Backoff{Delay: w.interval, Factor: 1, Jitter: retryJitter}
	for w.interval > 0 {
		delay, _ := pause.Next(0, nil)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		changes := w.look(ctx, set(), true)
		if len(changes) == 0 {
			continue
		}
		select {
		case w.found <- changes:
		case <-ctx.Done():
			return
		}
	}
}

// watchImages looks for new images in the background until the returned function is called.
func (c *watchCommand) watchImages(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { c.newest.run(ctx, c.objects.set.Load) })
	return func() {
		cancel()
		looking.Wait()
	}
}

// lookForImages finds the digests of the images that are not known yet, of all after SIGHUP.
func (c *watchCommand) lookForImages(ctx context.Context, set *manifests.Set) {
	if c.pullInterval == 0 {
		return
	}
	defer c.display.Wait("looking for the digests of images")()
	c.noticeImages(c.newest.look(ctx, set, c.newest.stale.Swap(false)))
}

// noticeImages says which images have changed.
func (c *watchCommand) noticeImages(changes []imageChange) {
	for _, one := range changes {
		c.notice(one.String())
	}
}
