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
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/containerd"
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
	// Since is when it was pulled or imported, and LastUse when a pod has used it last, zero if that is not known.
	Since   time.Time `json:"-"`
	LastUse time.Time `json:"-"`
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
			Since: r.Since, LastUse: r.LastUse,
		})
	}
	return images, nil
}

func (e *machineEngine) ImageSpace(ctx context.Context) (space image.Space, err error) {
	dir, err := e.ImageDir(ctx)
	if err != nil {
		return space, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return space, fmt.Errorf("measuring the file system of %s: %w", dir, err)
	}
	return image.Space{Capacity: int64(fs.Blocks) * fs.Bsize, Available: int64(fs.Bavail) * fs.Bsize}, nil
}

// makeRoom calls MakeRoom.
func (e *machineEngine) makeRoom(ctx context.Context, full bool) bool {
	return e.o.MakeRoom != nil && e.o.MakeRoom(ctx, full)
}

// Archives returns the image archives and OCI layouts at a path, which may be a directory of them
// and nothing else.
func Archives(path string) ([]image.Archive, error) {
	archives, unknown, err := find(path)
	if err == nil {
		err = inOneLine(unknown)
	}
	return archives, err
}

// find returns the archives at a path, and an error for everything else there. Nothing at all is an error.
func find(path string) (archives []image.Archive, unknown []error, err error) {
	archives, unknown, err = image.Archives(path)
	if err == nil && len(archives)+len(unknown) == 0 {
		err = fmt.Errorf("%s: no image archive or OCI layout in this directory", path)
	}
	return archives, unknown, err
}

// Imported is what has become of the archives at a path.
type Imported struct {
	// Refs are the images that the store has of them.
	Refs []string
	// Bad are the archives that cannot be used, and everything that is no archive.
	Bad []BadArchive
	// Unnamed has a line for each archive of which some images have no name.
	Unnamed []string
}

// BadArchive is an archive that cannot be used, or what else is where archives should be.
type BadArchive struct {
	// Refs are the images that it has and the store has not, nil if it is not known what it has.
	Refs []string
	Err  error // why it cannot be used; it names the file
}

// Err returns the errors of all bad archives in one line, nil if there are none.
func (i Imported) Err() error {
	errs := make([]error, 0, len(i.Bad))
	for _, bad := range i.Bad {
		errs = append(errs, bad.Err)
	}
	return inOneLine(errs)
}

func inOneLine(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return failure.WithMessage(strings.Join(texts, "; "), errors.Join(errs...))
}

// archive is one whose images are known.
type archive struct {
	image.Archive
	refs  map[string]string
	known bool // from an earlier import
}

// Import imports an archive, an OCI layout, or all of those in a directory, except those whose
// images are in the store already, and pins the images. One with a name has one image, which gets it. Of a bad
// archive nothing is imported. Archives of a directory that have different images of one name are an error, after
// which nothing was imported.
func (e *machineEngine) Import(ctx context.Context, path, name string) (in Imported, err error) {
	found, unknown, err := find(path)
	switch {
	case err != nil:
		return in, err
	case name != "" && len(found)+len(unknown) > 1:
		return in, fmt.Errorf("%s: there are several archives, so no single image can be named %s", path, name)
	}
	for _, err := range unknown {
		in.Bad = append(in.Bad, BadArchive{Err: err})
	}
	var archives []archive
	for _, a := range found {
		a.Name = name
		one, err := e.read(a, &in)
		if err != nil {
			in.Bad = append(in.Bad, BadArchive{Err: err})
			continue
		}
		archives = append(archives, one)
	}
	if err := conflict(archives, e.same(ctx)); err != nil {
		return in, err
	}
	for _, a := range archives {
		missing, err := e.missing(ctx, a)
		if err == nil && len(missing) > 0 {
			err = e.importMissing(ctx, a)
		}
		switch {
		case errors.Is(err, containerd.ErrUnusable), ctx.Err() != nil && err != nil:
			return in, err
		case err != nil:
			in.Bad = append(in.Bad, BadArchive{Refs: missing, Err: err})
		default:
			in.Refs = slices.AppendSeq(in.Refs, maps.Keys(a.refs))
		}
	}
	slices.Sort(in.Refs)
	in.Refs = slices.Compact(in.Refs)
	return in, nil
}

// read reads which images an archive has, unless that is known.
func (e *machineEngine) read(a image.Archive, in *Imported) (archive, error) {
	if a.Name == "" {
		if refs, known := e.cache().Load(a); known {
			return archive{a, refs, true}, nil
		}
	}
	e.report(engine.Transfer{Step: engine.Reading, Name: a.Path})
	refs, unnamed, err := a.Refs()
	e.report(engine.Transfer{Step: engine.Reading, Name: a.Path, Ended: true, Err: err})
	if len(unnamed) > 0 {
		in.Unnamed = append(in.Unnamed, fmt.Sprintf("%s: image %s has no name and is not imported: save it by its name (docker save NAME:TAG)", a.Path, strings.Join(unnamed, ", ")))
	}
	return archive{a, refs, false}, err
}

func (e *machineEngine) report(t engine.Transfer) {
	if e.o.Progress != nil {
		e.o.Progress(t)
	}
}

// conflict returns an error if archives have different images of one name.
func conflict(archives []archive, same func(ref, digest, other string) bool) error {
	first := map[string]archive{}
	for _, a := range archives {
		for _, ref := range slices.Sorted(maps.Keys(a.refs)) {
			if other, ok := first[ref]; ok && !same(ref, other.refs[ref], a.refs[ref]) {
				return fmt.Errorf("image %q is in %s and, with another digest, in %s: remove one of them", ref, other.Path, a.Path)
			}
			first[ref] = a
		}
	}
	return nil
}

// same says whether two digests of an image are equal, or unknown, or the digest and the ID of the image in the
// store: of a Docker archive, the ID is known before its import and the digest after it.
func (e *machineEngine) same(ctx context.Context) func(ref, digest, other string) bool {
	return func(ref, digest, other string) bool {
		if digest == other || digest == "" || other == "" {
			return true
		}
		img, err := e.Engine.Image(ctx, ref)
		own := []string{img.ID, img.Digest}
		return err == nil && slices.Contains(own, digest) && slices.Contains(own, other)
	}
}

// importMissing imports an archive whose images the store does not have.
func (e *machineEngine) importMissing(ctx context.Context, a archive) (err error) {
	last := engine.Transfer{Step: engine.Importing, Name: a.Path}
	e.report(last)
	defer func() {
		last.Ended, last.Err = true, err
		e.report(last)
	}()
	var read atomic.Int64
	reported := time.Now()
	a.OnRead = func(done, total int64) {
		read.Store(done)
		if time.Since(reported) > reportEvery {
			reported = time.Now()
			e.report(engine.Transfer{Step: engine.Importing, Name: a.Path, Done: done, Total: total})
		}
	}
	e.makeRoom(ctx, false)
	_, err = e.ImportArchive(ctx, a.Archive)
	if errors.Is(err, syscall.ENOSPC) && e.makeRoom(ctx, true) {
		_, err = e.ImportArchive(ctx, a.Archive)
	}
	last.Done = read.Load()
	if err != nil {
		return err
	}
	return e.remember(ctx, a)
}

// cache has what is known of the archives that were imported, see image.Cache.
func (e *machineEngine) cache() image.Cache { return image.Cache(filepath.Join(e.o.Root, "archives")) }

// missing returns the images of an archive that the store does not have, by reference and digest. If there are
// none, it pins them.
func (e *machineEngine) missing(ctx context.Context, a archive) (missing []string, err error) {
	records, err := e.Engine.ListImages(ctx)
	if err != nil {
		return nil, failure.Unusable{Cause: err}
	}
	var unpinned []string
	for ref, digest := range a.refs {
		i := slices.IndexFunc(records, func(r images.Record) bool { return r.Ref == ref && (r.Size > 0 || a.known) })
		switch {
		case i < 0 || digest == "" || records[i].Digest != digest && !e.hasID(ctx, ref, digest):
			missing = append(missing, ref)
		case !records[i].Pinned:
			unpinned = append(unpinned, ref)
		}
	}
	if len(missing) > 0 {
		return missing, nil
	}
	if err := e.Engine.PinImages(ctx, unpinned); err != nil {
		return nil, failure.Unusable{Cause: err}
	}
	if a.known {
		return nil, nil
	}
	return nil, e.remember(ctx, a)
}

// hasID says whether an image in the store has the ID: a Docker archive has no digests of images.
func (e *machineEngine) hasID(ctx context.Context, ref, id string) bool {
	img, err := e.Engine.Image(ctx, ref)
	return err == nil && img.ID == id
}

// remember keeps the digests that the images of an archive have in the store.
func (e *machineEngine) remember(ctx context.Context, a archive) error {
	if a.Name != "" {
		return nil
	}
	records, err := e.Engine.ListImages(ctx)
	if err != nil {
		return failure.Unusable{Cause: err}
	}
	for _, r := range records {
		if _, ok := a.refs[r.Ref]; ok {
			a.refs[r.Ref] = r.Digest
		}
	}
	if err := e.cache().Store(a.Archive, a.refs); err != nil {
		e.o.Log.WarnContext(ctx, "could not cache what the archive contains; it will be read again next time", "archive", a.Path, "error", err)
	}
	return nil
}
