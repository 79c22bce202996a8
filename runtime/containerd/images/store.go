// Package images pulls, imports and unpacks images with containerd, and reads what a container
// needs to know of them. It finds registries by containerd's hosts files.
package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/locker"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/runonce/runonce/runtime/image"
)

// Conn is a connection to containerd, with the snapshotter of all containers.
type Conn struct {
	*client.Client
	Snapshotter string
}

// Snapshots returns the snapshotter of all containers.
func (s Conn) Snapshots() snapshots.Snapshotter { return s.SnapshotService(s.Snapshotter) }

// Image is an image that is unpacked and ready to run.
type Image struct {
	engine.Image
	ChainID string // the snapshot that a container's own layer lies on, empty without layers
}

// Store caches what was read of images.
type Store struct {
	users  string                // directory of the cached passwd and group files
	report func(engine.Transfer) // nil for none
	byRef  sync.Map              // of *Image
	locks  locker.Locker         // by reference, by chain ID and by the key of a view
	kept   sync.Map              // of leases.Lease, by the reference of an image whose pull has failed
}

// New returns a store that caches passwd and group files in the directory users. It calls report,
// unless that is nil, when images are pulled or unpacked, and while that lasts.
func New(users string, report func(engine.Transfer)) *Store {
	return &Store{users: users, report: report}
}

// Forget drops what is cached of a reference.
func (c *Store) Forget(ref string) { c.byRef.Delete(ref) }

// Get returns the image with a normalized reference, unpacked.
func (c *Store) Get(ctx context.Context, s Conn, ref string) (*Image, error) {
	c.locks.Lock(ref)
	defer func() { _ = c.locks.Unlock(ref) }()
	record, err := findImage(ctx, s, ref)
	if err != nil {
		return nil, err
	}
	c.noteUse(record.Target.Digest)
	known, _ := c.byRef.Load(ref)
	if img, ok := known.(*Image); ok && img.Digest == record.Target.Digest.String() {
		return img, nil
	}
	img, err := c.load(ctx, s, record)
	if err != nil {
		return nil, err
	}
	img.Ref = ref
	c.byRef.Store(ref, img)
	return img, nil
}

// findImage finds the record of a reference. One with a digest also finds the image that
// came with a tag.
func findImage(ctx context.Context, s Conn, ref string) (images.Image, error) {
	record, err := s.ImageService().Get(ctx, ref)
	if err == nil || !errdefs.IsNotFound(err) {
		return record, NativeError(err)
	}
	_, digest, ok := strings.Cut(ref, "@")
	if !ok {
		return images.Image{}, err
	}
	same, lerr := s.ImageService().List(ctx, "target.digest=="+digest)
	if lerr != nil {
		return images.Image{}, NativeError(lerr)
	}
	i := slices.IndexFunc(same, func(one images.Image) bool { return image.Same(ref, one.Name, digest) })
	if i < 0 {
		return images.Image{}, err
	}
	return same[i], nil
}

// ensureUnpacked unpacks the layers of an image, if there are any, unless that was done before.
func (c *Store) ensureUnpacked(ctx context.Context, s Conn, record images.Image, layers []digest.Digest) error {
	if len(layers) == 0 {
		return nil
	}
	_, err := s.Snapshots().Stat(ctx, identity.ChainID(layers).String())
	switch {
	case err == nil:
		return nil
	case !errdefs.IsNotFound(err):
		return fmt.Errorf("looking for its snapshot: %w", NativeError(err))
	}
	if err := c.unpack(ctx, s, record, layers); err != nil {
		err = NativeError(err)
		return &failure.Error{Why: failure.ReasonErrImagePull, Final: isCorrupt(err) || isOther(err), Err: fmt.Errorf("unpacking it: %w", err)}
	}
	return nil
}

func (c *Store) unpack(ctx context.Context, s Conn, record images.Image, layers []digest.Digest) (err error) {
	ctx, release, err := holdLease(ctx, s.Client)
	if err != nil {
		return err
	}
	if t := c.Track(record.Name, engine.Unpacking); t != nil {
		defer func() { t.End(engine.Unpacking, err) }()
		defer every(ctx, func(ctx context.Context) { t.layers(ctx, s, layers) })()
	}
	return release(unpackLayers(ctx, s, record))
}

// load reads the image's configuration, and unpacks it unless that was done before.
func (c *Store) load(ctx context.Context, s Conn, record images.Image) (*Image, error) {
	store := s.ContentStore()
	manifest, err := images.Manifest(ctx, store, record.Target, platforms.Default())
	if err != nil {
		err = NativeError(withPlatforms(ctx, store, err, func() ocispec.Descriptor { return record.Target }))
		if isCorrupt(err) || isOther(err) {
			err = &failure.Error{Why: failure.ReasonErrImagePull, Final: true, Err: err}
		}
		return nil, fmt.Errorf("reading its manifest: %w", err)
	}
	config, err := readConfig(ctx, store, manifest.Config)
	if err == nil {
		err = checkLayers(manifest, config.Image)
	}
	if err != nil {
		return nil, err
	}
	chain := identity.ChainID(config.RootFS.DiffIDs).String()
	if err := c.ensureUnpacked(ctx, s, record, config.RootFS.DiffIDs); err != nil {
		return nil, err
	}
	img := &Image{ChainID: chain, Image: engine.Image{
		Ref:        record.Name,
		ID:         manifest.Config.Digest.String(),
		Digest:     record.Target.Digest.String(),
		Entrypoint: config.Config.Entrypoint,
		Cmd:        config.Config.Cmd,
		Env:        config.Config.Env,
		User:       config.Config.User,
		WorkingDir: config.Config.WorkingDir,
		StopSignal: config.Config.StopSignal,
		Volumes:    declaredVolumes(config.Config.Volumes),
		Platform:   otherPlatform(config.Platform),

		Healthcheck: config.healthcheck(),
	}}
	for _, l := range manifest.Layers {
		img.Size += l.Size
	}
	return img, nil
}

// declaredVolumes returns the directories that an image declares as volumes, in order.
func declaredVolumes(declared map[string]struct{}) []string {
	dirs := make([]string, 0, len(declared))
	for dir := range declared {
		dirs = append(dirs, filepath.Join("/", dir))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// configuration is that of an image, with what only Docker's format has.
type configuration struct {
	ocispec.Image
	Config struct {
		ocispec.ImageConfig
		Shell       []string
		Healthcheck json.RawMessage
	} `json:"config"`
}

// healthcheck returns the health check of the image, nil if it has none that can be read.
func (c *configuration) healthcheck() *engine.Healthcheck {
	h := &engine.Healthcheck{}
	if len(c.Config.Healthcheck) == 0 || json.Unmarshal(c.Config.Healthcheck, h) != nil || len(h.Test) == 0 {
		return nil
	}
	h.Shell = c.Config.Shell
	return h
}

// readConfig reads the configuration of an image.
func readConfig(ctx context.Context, store content.Store, d ocispec.Descriptor) (config configuration, err error) {
	if d.Size > maxAnswer {
		return config, fmt.Errorf("reading its configuration: %w", tooLarge(d))
	}
	blob, err := content.ReadBlob(ctx, store, d)
	if err != nil {
		return config, fmt.Errorf("reading its configuration: %w", NativeError(err))
	}
	if err := json.Unmarshal(blob, &config); err != nil {
		return config, failure.Permanentf("reading its configuration: %w", err)
	}
	return config, nil
}

// checkLayers refuses what is not an image, such as a chart: its configuration does not have the layers.
func checkLayers(manifest ocispec.Manifest, config ocispec.Image) error {
	if all, named := len(manifest.Layers), len(config.RootFS.DiffIDs); all != named {
		return failure.Permanentf("it is not a container image: it has %d layers, and its configuration, of type %q, has %d", all, manifest.Config.MediaType, named)
	}
	return nil
}

// users are the files with the users and groups of an image.
type users struct {
	Passwd []byte `json:"passwd"`
	Group  []byte `json:"group"`
}

// readUsers fills in the image's passwd and group files. They are read from the mounted image
// once, and then cached by the image's content.
func (c *Store) readUsers(ctx context.Context, s Conn, img *Image) error {
	c.locks.Lock(img.ChainID)
	defer func() { _ = c.locks.Unlock(img.ChainID) }()
	if img.ChainID == "" || img.Passwd != nil || img.Group != nil {
		return nil
	}
	path := filepath.Join(c.users, digest.Digest(img.ChainID).Encoded()+".json")
	var u users
	if data, err := os.ReadFile(path); err == nil && json.Unmarshal(data, &u) == nil {
		img.Passwd, img.Group = u.Passwd, u.Group
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading its users: %w", err)
	}
	u, err := c.mountedUsers(ctx, s, img.ChainID)
	if err != nil {
		return fmt.Errorf("reading its users: %w", err)
	}
	img.Passwd, img.Group = u.Passwd, u.Group
	return cacheUsers(path, u)
}

func cacheUsers(path string, u users) error {
	data, _ := json.Marshal(u) // texts
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = atomicfile.Write(path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("caching the image's users: %w", err)
	}
	return nil
}
