package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/image"
)

// Images returns the images of the store.
func (e *engine) Images(ctx context.Context) ([]backend.Image, error) {
	records, err := e.engine.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	images := make([]backend.Image, 0, len(records))
	for _, r := range records {
		images = append(images, backend.Image{Name: r.Ref, Digest: r.Digest, Size: r.Size})
	}
	return images, nil
}

// Import imports an archive, an OCI layout, or all of those in a directory. What is there
// already is not imported again.
func (e *engine) Import(ctx context.Context, path string) ([]string, error) {
	archives, err := e.archives(path)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, a := range archives {
		refs, err := a.Refs()
		if err != nil {
			return nil, err
		}
		if !e.has(ctx, refs) {
			if err := e.importOne(ctx, a); err != nil {
				return nil, err
			}
		}
		for ref := range refs {
			names[ref] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// archives finds out what the path is.
func (e *engine) archives(path string) ([]image.Archive, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("looking for images: %w", err)
	}
	_, err = os.Stat(filepath.Join(path, "oci-layout"))
	single := !info.IsDir() || err == nil
	dir := path
	if single {
		dir = filepath.Dir(path)
	}
	found, unknown, err := image.Archives(dir)
	if single {
		found = slices.DeleteFunc(found, func(a image.Archive) bool { return a.Path != filepath.Clean(path) })
		if len(found) == 0 && err == nil {
			err = fmt.Errorf("%s: neither an image archive nor an OCI layout", path)
		}
		return found, err
	}
	for _, u := range unknown {
		e.log.Warn("not an image: " + u)
	}
	return found, err
}

// has says whether every image is in the store as it is in the archive.
func (e *engine) has(ctx context.Context, refs map[string]string) bool {
	for ref, digest := range refs {
		img, err := e.engine.Image(ctx, ref)
		if err != nil || digest == "" || (img.Digest != digest && img.ID != digest) {
			return false
		}
	}
	return true
}

func (e *engine) importOne(ctx context.Context, a image.Archive) error {
	r, err := a.Open()
	if err != nil {
		return err
	}
	_, err = e.engine.ImportArchive(ctx, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("importing %s: %w", a.Path, err)
	}
	return nil
}
