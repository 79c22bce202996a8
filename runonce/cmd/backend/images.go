package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// reportEvery is how often at most an import reports how far it is.
const reportEvery = 250 * time.Millisecond

// Image is an image in the store.
type Image struct {
	Ref    string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // bytes, compressed; 0 when the content is incomplete
	// Pinned images came with an archive: they are kept although no pod uses them.
	Pinned bool `json:"pinned"`
	// UsedBy are the pods that use the image, and containers without a pod.
	UsedBy []string `json:"usedBy"`
	// Foreign images are another program's.
	Foreign bool `json:"-"`
}

// ownNamespace is the namespace that only this program uses.
const ownNamespace = "runonce"

func (e *machineEngine) Images(ctx context.Context) ([]Image, error) {
	records, err := e.Engine.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	shared := e.o.Address != "" && e.o.Namespace != ownNamespace
	images := make([]Image, 0, len(records))
	for _, r := range records {
		images = append(images, Image{
			Ref: r.Ref, Digest: r.Digest, Size: r.Size, Pinned: r.Pinned, Foreign: shared && !r.Own, UsedBy: append([]string{}, r.UsedBy...),
		})
	}
	return images, nil
}

// Archives returns the image archives and OCI layouts at a path, which may be a directory of them
// and nothing else.
func Archives(path string) ([]image.Archive, error) {
	archives, unknown, err := image.Archives(path)
	switch {
	case err != nil:
		return nil, err
	case len(unknown) > 0:
		return nil, errors.New(strings.Join(unknown, "; "))
	case len(archives) == 0:
		return nil, fmt.Errorf("%s: no image archive or OCI layout in this directory", path)
	}
	return archives, nil
}

// Import imports an archive, an OCI layout, or all of those in a directory, except those whose
// images are in the store already, and pins the images. Archives of a directory that have different
// images of one name are an error.
func (e *machineEngine) Import(ctx context.Context, path string) ([]string, error) {
	archives, err := Archives(path)
	if err != nil {
		return nil, err
	}
	digests, paths := map[string]string{}, map[string]string{}
	for _, a := range archives {
		refs, err := e.importMissing(ctx, a)
		if err != nil {
			return nil, err
		}
		for ref, digest := range refs {
			if known, ok := digests[ref]; ok && known != digest {
				return nil, fmt.Errorf("image %q is in %s and, with another digest, in %s: remove one of them", ref, paths[ref], a.Path)
			}
			digests[ref], paths[ref] = digest, a.Path
		}
	}
	return slices.Sorted(maps.Keys(digests)), nil
}

// importMissing imports an archive unless the store has its images, whose names it returns.
func (e *machineEngine) importMissing(ctx context.Context, a image.Archive) (refs map[string]string, err error) {
	report := e.o.Progress
	if report == nil {
		report = func(engine.Transfer) {}
	}
	last := engine.Transfer{Step: engine.Reading, Name: a.Path}
	report(last)
	defer func() {
		last.Ended, last.Err = true, err
		report(last)
	}()
	refs, present, err := e.present(ctx, a)
	if err != nil || present {
		return refs, err
	}
	last.Step = engine.Importing
	report(last)
	var read atomic.Int64
	reported := time.Now()
	a.OnRead = func(done, total int64) {
		read.Store(done)
		if time.Since(reported) > reportEvery {
			reported = time.Now()
			report(engine.Transfer{Step: engine.Importing, Name: a.Path, Done: done, Total: total})
		}
	}
	_, err = e.ImportArchive(ctx, a)
	last.Done = read.Load()
	if err != nil {
		return nil, err
	}
	return refs, e.remember(ctx, a, refs)
}

// cache has what is known of the archives that were imported, see image.Cache.
func (e *machineEngine) cache() image.Cache { return image.Cache(filepath.Join(e.o.Root, "archives")) }

// present returns the images of an archive, and says whether the store has them, by reference and
// digest. It pins them then.
func (e *machineEngine) present(ctx context.Context, a image.Archive) (refs map[string]string, present bool, err error) {
	refs, known := e.cache().Load(a)
	if !known {
		if refs, err = a.Refs(); err != nil {
			return nil, false, err
		}
	}
	records, err := e.Engine.ListImages(ctx)
	if err != nil {
		return refs, false, err
	}
	var unpinned []string
	for ref, digest := range refs {
		i := slices.IndexFunc(records, func(r images.Record) bool { return r.Ref == ref && (r.Size > 0 || known) })
		if i < 0 || digest == "" || records[i].Digest != digest && !e.hasID(ctx, ref, digest) {
			return refs, false, nil
		}
		if !records[i].Pinned {
			unpinned = append(unpinned, ref)
		}
	}
	if err := e.Engine.PinImages(ctx, unpinned); err != nil || known {
		return refs, true, err
	}
	return refs, true, e.remember(ctx, a, refs)
}

// hasID says whether an image in the store has the ID: a Docker archive has no digests of images.
func (e *machineEngine) hasID(ctx context.Context, ref, id string) bool {
	img, err := e.Engine.Image(ctx, ref)
	return err == nil && img.ID == id
}

// remember keeps the digests that the images of an archive have in the store.
func (e *machineEngine) remember(ctx context.Context, a image.Archive, refs map[string]string) error {
	records, err := e.Engine.ListImages(ctx)
	if err != nil {
		return err
	}
	for _, r := range records {
		if _, ok := refs[r.Ref]; ok {
			refs[r.Ref] = r.Digest
		}
	}
	if err := e.cache().Store(a, refs); err != nil {
		e.o.Log.WarnContext(ctx, "the archive has to be read again next time", "archive", a.Path, "error", err)
	}
	return nil
}
