package images

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/runtime/engine"
)

// reportInterval is how often a transfer is looked at while it lasts.
const reportInterval = 500 * time.Millisecond

// Transfer watches one pull or the unpacking of one image. A nil Transfer does nothing.
type Transfer struct {
	report func(engine.Transfer)
	ref    string
	bytes  atomic.Int64 // that have arrived of anything

	mu     sync.Mutex
	blobs  map[digest.Digest]*blob // to be fetched
	config ocispec.Descriptor      // of the image, once its manifest is known
}

// blob is a part of an image that has to be fetched.
type blob struct {
	size int64
	done int64
}

// Track begins a transfer, which the caller ends with End.
func (c *Store) Track(ref string, step engine.Step) *Transfer { return track(c.report, ref, step) }

func track(report func(engine.Transfer), ref string, step engine.Step) *Transfer {
	if report == nil {
		return nil
	}
	report(engine.Transfer{Step: step, Name: ref})
	return &Transfer{report: report, ref: ref, blobs: map[digest.Digest]*blob{}}
}

// End reports the end.
func (t *Transfer) End(step engine.Step, err error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	done, _ := t.ofBlobs()
	t.report(engine.Transfer{Step: step, Name: t.ref, Done: done, Total: done, Ended: true, Err: err})
}

// handler notes the blobs of a manifest before they are fetched, and each that was fetched.
func (t *Transfer) handler(store content.Store) func(images.Handler) images.Handler {
	return func(next images.Handler) images.Handler {
		if t == nil {
			return next
		}
		return images.HandlerFunc(func(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
			children, err := next.Handle(ctx, desc)
			switch {
			case err != nil:
			case images.IsManifestType(desc.MediaType):
				t.expect(ctx, store, children)
			default:
				t.arrived(desc.Digest)
			}
			return children, err
		})
	}
}

// expect adds blobs, except those that the store has.
func (t *Transfer) expect(ctx context.Context, store content.Store, all []ocispec.Descriptor) {
	missing := slices.DeleteFunc(slices.Clone(all), func(d ocispec.Descriptor) bool {
		_, err := store.Info(ctx, d.Digest)
		return !errdefs.IsNotFound(err)
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range missing {
		if t.blobs[d.Digest] == nil {
			t.blobs[d.Digest] = &blob{size: d.Size}
		}
	}
	if i := slices.IndexFunc(all, func(d ocispec.Descriptor) bool { return images.IsConfigType(d.MediaType) }); i >= 0 {
		t.config = all[i]
	}
}

func (t *Transfer) arrived(d digest.Digest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.blobs[d]; b != nil {
		b.done = b.size
	}
}

// watch reports how far the pull is until the returned function is called.
func (t *Transfer) watch(ctx context.Context, s Conn) (end func()) {
	if t == nil {
		return func() {}
	}
	return every(ctx, func(ctx context.Context) {
		active, err := s.ContentStore().ListStatuses(ctx, "")
		if err != nil {
			return // the pull itself fails as well
		}
		if t.advance(active) {
			t.watchChain(ctx, s)
		}
	})
}

// advance reports the bytes that have arrived, and says whether these are all.
func (t *Transfer) advance(active []content.Status) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range active {
		// The reference of what is being fetched ends with its digest (remotes.MakeRefKey).
		_, d, _ := strings.Cut(st.Ref, "-")
		if b := t.blobs[digest.Digest(d)]; b != nil {
			b.done = max(b.done, min(st.Offset, b.size))
		}
	}
	done, total := t.ofBlobs()
	if total == 0 {
		done = t.bytes.Load() // of the manifests
	}
	if t.config.Digest != "" && done == total {
		return true
	}
	t.report(engine.Transfer{Step: engine.Pulling, Name: t.ref, Done: done, Total: total})
	return false
}

// ofBlobs returns how many bytes of the blobs have arrived, and of how many. The caller holds the lock.
func (t *Transfer) ofBlobs() (done, total int64) {
	for _, b := range t.blobs {
		done, total = done+b.done, total+b.size
	}
	return done, total
}

// watchChain reports how many layers of a fetched image are unpacked.
func (t *Transfer) watchChain(ctx context.Context, s Conn) {
	t.mu.Lock()
	desc := t.config
	t.mu.Unlock()
	if config, err := readConfig(ctx, s.ContentStore(), desc); err == nil {
		t.layers(ctx, s, config.RootFS.DiffIDs)
	}
}

// layers reports how many of the layers are unpacked.
func (t *Transfer) layers(ctx context.Context, s Conn, all []digest.Digest) {
	done := 0
	for i := len(all); i > 0 && done == 0; i-- {
		if _, err := s.Snapshots().Stat(ctx, identity.ChainID(all[:i]).String()); err == nil {
			done = i
		}
	}
	t.report(engine.Transfer{Step: engine.Unpacking, Name: t.ref, Done: int64(done), Total: int64(len(all))})
}

// every calls f at intervals until the returned function is called.
func every(ctx context.Context, f func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(reportInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				f(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
