package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// reportEvery is how often at most an import reports how far it is.
const reportEvery = 250 * time.Millisecond

// Image is an image in the store.
type Image struct {
	Ref    string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"` // bytes, compressed
}

func (e *machineEngine) Images(ctx context.Context) ([]Image, error) {
	records, err := e.Engine.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	images := make([]Image, 0, len(records))
	for _, r := range records {
		images = append(images, Image(r))
	}
	return images, nil
}

// Import imports an archive, an OCI layout, or all of those in a directory, except those whose
// images are in the store already.
func (e *machineEngine) Import(ctx context.Context, path string) ([]string, error) {
	archives, unknown, err := image.Archives(path)
	for _, u := range unknown {
		e.o.Log.Warn("ignored " + u)
	}
	if err == nil && len(archives) == 0 {
		err = fmt.Errorf("%s: no image archive or OCI layout in this directory", path)
	}
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, a := range archives {
		refs, err := e.importMissing(ctx, a)
		if err != nil {
			return nil, err
		}
		for ref := range refs {
			names[ref] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
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
	if refs, err = a.Refs(); err != nil || e.has(ctx, refs) {
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
	err = e.importArchive(ctx, a)
	last.Done = read.Load()
	return refs, err
}

// has says whether the store has all these images, by reference and digest.
func (e *machineEngine) has(ctx context.Context, refs map[string]string) bool {
	for ref, digest := range refs {
		img, err := e.Engine.Image(ctx, ref)
		if err != nil || digest == "" || (img.Digest != digest && img.ID != digest) {
			return false
		}
	}
	return true
}

func (e *machineEngine) importArchive(ctx context.Context, a image.Archive) error {
	r, err := a.Open()
	if err != nil {
		return err
	}
	_, err = e.Engine.ImportArchive(ctx, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("importing %s: %w", a.Path, err)
	}
	return nil
}
