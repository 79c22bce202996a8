package containerd

import (
	"context"
	"fmt"

	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
)

// ImportArchive adds the images of an archive, whose format image.Archives has recognised, and
// returns their references. An archive without a name for an image is an error. It is read again
// when the process that serves containerd ends. An error that is not about the archive wraps
// ErrUnusable.
func (e *Engine) ImportArchive(ctx context.Context, a image.Archive) ([]string, error) {
	var refs []string
	err := e.do(ctx, func(ctx context.Context, s *session) (err error) {
		refs, err = images.Import(ctx, s.Conn, a)
		return err
	})
	if err != nil {
		e.deleted.Store(true) // what was read of it so far
		return nil, fmt.Errorf("importing %s: %w", a.Path, err)
	}
	for _, ref := range refs {
		e.images.Forget(ref)
	}
	return refs, nil
}

// Image returns the image in the local store that ref names, unpacked.
func (e *Engine) Image(ctx context.Context, ref string) (engine.Image, error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return engine.Image{}, err
	}
	var img *images.Image
	err = e.do(ctx, func(ctx context.Context, s *session) error {
		img, err = e.images.WithUsers(ctx, s.Conn, name)
		return err
	})
	if err != nil {
		return engine.Image{}, fmt.Errorf("looking for image %q: %w", ref, err)
	}
	return img.Image, nil
}

// Pull fetches the image from its registry and unpacks it. As long as the registry denies
// access, it tries the credentials one after the other, then those of the keychain.
func (e *Engine) Pull(ctx context.Context, ref string, credentials ...engine.Credential) (_ engine.Image, err error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return engine.Image{}, err
	}
	t := e.images.Track(name, engine.Pulling)
	defer func() { t.End(engine.Pulling, err) }()
	var img *images.Image
	err = e.registries.Each(ctx, name, credentials, func(a images.Access) error {
		return e.do(ctx, func(ctx context.Context, s *session) (err error) {
			img, err = e.images.Pull(ctx, s.Conn, a, t)
			return err
		})
	})
	if err != nil {
		e.deleted.Store(true) // what was fetched of it so far
		return engine.Image{}, fmt.Errorf("pulling image %q: %w", ref, images.PullFailure(err))
	}
	return img.Image, nil
}

// CheckRegistries returns an error when a file that says how to pull the images cannot be used:
// one with credentials, a configuration of credential providers, or the hosts file of a registry.
func (e *Engine) CheckRegistries(refs []string) error {
	names := make([]string, 0, len(refs))
	for _, ref := range refs {
		if name, err := image.Normalize(ref); err == nil {
			names = append(names, name)
		}
	}
	for _, text := range e.registries.Ignored(names) {
		e.o.Log.Warn("ignoring hosts files: " + text)
	}
	return e.registries.Check(names)
}

// Mount mounts an image of the local store read-only on the directory, and keeps it under the
// key.
func (e *Engine) Mount(ctx context.Context, ref, key, dir string) error {
	return e.withImage(ctx, "mounting", ref, func(ctx context.Context, s *session, img *images.Image) error {
		return e.images.MountView(ctx, s.Conn, img, key, dir)
	})
}

// CopyFromImage copies directories of an image.
func (e *Engine) CopyFromImage(ctx context.Context, ref string, dirs map[string]string) error {
	err := e.withImage(ctx, "copying from", ref, func(ctx context.Context, s *session, img *images.Image) error {
		return e.images.Copy(ctx, s.Conn, img, dirs)
	})
	if err == nil {
		e.deleted.Store(true) // the view
	}
	return err
}

// withImage calls f with an image of the local store. doing begins the text of an error.
func (e *Engine) withImage(ctx context.Context, doing, ref string, f func(context.Context, *session, *images.Image) error) error {
	name, err := image.Normalize(ref)
	if err != nil {
		return err
	}
	err = e.do(ctx, func(ctx context.Context, s *session) error {
		img, err := e.images.Get(ctx, s.Conn, name)
		if err != nil {
			return err
		}
		return f(ctx, s, img)
	})
	if err != nil {
		return fmt.Errorf("%s image %q: %w", doing, ref, err)
	}
	return nil
}

// Release removes what Mount keeps under the key.
func (e *Engine) Release(ctx context.Context, key string) error {
	err := e.do(ctx, func(ctx context.Context, s *session) error { return images.RemoveView(ctx, s.Conn, key) })
	if err != nil {
		return fmt.Errorf("releasing image volume %q: %w", key, err)
	}
	e.deleted.Store(true)
	return nil
}

// ListImages returns the images of the local store in order of their references.
func (e *Engine) ListImages(ctx context.Context) ([]images.Record, error) {
	var found []images.Record
	err := e.do(ctx, func(ctx context.Context, s *session) (err error) {
		found, err = e.images.List(ctx, s.Conn)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}
	return found, nil
}

// ImageDir returns a directory on the file system that has the images.
func (e *Engine) ImageDir(ctx context.Context) (dir string, err error) {
	if e.o.Address == "" {
		return e.o.Root, nil
	}
	err = e.do(ctx, func(ctx context.Context, s *session) (err error) {
		dir, err = images.Dir(ctx, s.Conn)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("asking containerd where its images are: %w", err)
	}
	return dir, nil
}

// PinImages marks images as such that are kept although nothing uses them.
func (e *Engine) PinImages(ctx context.Context, refs []string) error {
	return e.do(ctx, func(ctx context.Context, s *session) error { return images.Pin(ctx, s.Conn, refs) })
}

// RemoveImages removes images with their content, except what others or containers use, and
// returns how many bytes that has freed.
func (e *Engine) RemoveImages(ctx context.Context, refs []string) (freed int64, err error) {
	err = e.do(ctx, func(ctx context.Context, s *session) error {
		freed, err = e.images.Remove(ctx, s.Conn, refs)
		return err
	})
	return freed, err
}

// Resolve asks the registry for the digest of the image. It does not need containerd.
func (e *Engine) Resolve(ctx context.Context, ref string, credentials ...engine.Credential) (string, error) {
	name, err := image.Normalize(ref)
	if err != nil {
		return "", err
	}
	return e.registries.Digest(ctx, name, credentials)
}
