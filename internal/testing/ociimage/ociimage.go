// Package ociimage builds OCI image archives without a container engine, for tests and the
// demo. Builds are reproducible.
package ociimage

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	goruntime "runtime"
	"time"

	"github.com/opencontainers/go-digest"
	imagespec "github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// annotationImageName is containerd's annotation for the full reference; the OCI annotation
// ref.name may be only a tag.
const annotationImageName = "io.containerd.image.name"

// Compression is how a layer is compressed.
type Compression string

// The supported compressions.
const (
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
	None Compression = "none"
)

// File is one entry of an image's layer.
type File struct {
	// Path is the path in the image; a leading slash is optional. Missing parent
	// directories are created with mode 0755.
	Path string
	// Mode has the permissions and the type: a directory, a symbolic link (to Link) or a
	// regular file. Zero is a regular file with mode 0644.
	Mode fs.FileMode
	Body []byte
	Link string
	UID  int
	GID  int
}

// Image is an image to build.
type Image struct {
	// Ref is the full reference under which the image is imported.
	Ref string
	// Layers are applied in order. Files, if any, are one more layer on top.
	Layers [][]File
	Files  []File
	// Config is the image's part of the configuration: user, entrypoint, env and so on.
	Config v1.ImageConfig
	// Healthcheck, if set, is the one of Docker's format, as JSON.
	Healthcheck json.RawMessage
	// Compression of the layers; empty is Gzip.
	Compression Compression
	// Architecture is that of this machine if it is empty.
	Architecture string
}

// Build writes the image as a tar archive in the OCI layout. It does not close w.
func Build(w io.Writer, img Image) error {
	l := layout{blobs: map[digest.Digest][]byte{}}
	if err := l.add(img); err != nil {
		return fmt.Errorf("building image %q: %w", img.Ref, err)
	}
	return l.write(w)
}

// BuildIndex writes an archive like Build, of an image for several architectures.
func BuildIndex(w io.Writer, ref string, all ...Image) error {
	l := layout{blobs: map[digest.Digest][]byte{}}
	index := v1.Index{Versioned: imagespec.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex}
	for _, img := range all {
		if err := l.add(img); err != nil {
			return fmt.Errorf("building image %q: %w", ref, err)
		}
		l.manifest.Annotations = nil
		index.Manifests = append(index.Manifests, l.manifest)
	}
	desc, err := l.blobJSON(v1.MediaTypeImageIndex, index)
	if err != nil {
		return err
	}
	desc.Annotations = named(ref)
	l.manifest = desc
	return l.write(w)
}

// named returns the annotations with the name of an image.
func named(ref string) map[string]string {
	return map[string]string{annotationImageName: ref, v1.AnnotationRefName: ref}
}

// sum computes the digest without go-digest's registry, which only has the hash functions that
// the program imports.
func sum(body []byte) digest.Digest {
	h := sha256.Sum256(body)
	return digest.NewDigestFromBytes(digest.SHA256, h[:])
}

// layout collects the blobs of an OCI layout.
type layout struct {
	blobs    map[digest.Digest][]byte
	order    []digest.Digest
	manifest v1.Descriptor
}

func (l *layout) blob(mediaType string, body []byte) v1.Descriptor {
	d := sum(body)
	if _, ok := l.blobs[d]; !ok {
		l.blobs[d] = body
		l.order = append(l.order, d)
	}
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(body))}
}

func (l *layout) blobJSON(mediaType string, v any) (v1.Descriptor, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("encoding %s: %w", mediaType, err)
	}
	return l.blob(mediaType, body), nil
}

// pack builds the image's configuration and layers.
func (img Image) pack() (v1.Image, []layer, error) {
	files := img.Layers
	if len(img.Files) > 0 {
		files = append(files[:len(files):len(files)], img.Files)
	}
	config := v1.Image{
		Platform: img.platform(),
		Config:   img.Config,
		RootFS:   v1.RootFS{Type: "layers"},
	}
	layers := make([]layer, 0, len(files))
	for _, f := range files {
		packed, err := packLayer(f, img.Compression)
		if err != nil {
			return v1.Image{}, nil, err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, packed.diffID)
		layers = append(layers, packed)
	}
	return config, layers, nil
}

// dockerImage is a configuration with what only Docker's format has.
type dockerImage struct {
	v1.Image
	Config struct {
		v1.ImageConfig
		Healthcheck json.RawMessage
	} `json:"config"`
}

func (img Image) platform() v1.Platform {
	return v1.Platform{Architecture: cmp.Or(img.Architecture, goruntime.GOARCH), OS: "linux"}
}

func (l *layout) add(img Image) error {
	config, layers, err := img.pack()
	if err != nil {
		return err
	}
	manifest := v1.Manifest{
		Versioned: imagespec.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
	}
	for _, packed := range layers {
		manifest.Layers = append(manifest.Layers, l.blob(packed.mediaType, packed.body))
	}
	var body any = config
	if img.Healthcheck != nil {
		docker := dockerImage{Image: config}
		docker.Config.ImageConfig, docker.Config.Healthcheck = config.Config, img.Healthcheck
		body = docker
	}
	if manifest.Config, err = l.blobJSON(v1.MediaTypeImageConfig, body); err != nil {
		return err
	}
	desc, err := l.blobJSON(v1.MediaTypeImageManifest, manifest)
	if err != nil {
		return err
	}
	desc.Platform = new(img.platform())
	desc.Annotations = named(img.Ref)
	l.manifest = desc
	return nil
}

func (l *layout) write(w io.Writer) error {
	index, err := json.Marshal(v1.Index{
		Versioned: imagespec.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{l.manifest},
	})
	if err != nil {
		return fmt.Errorf("encoding the index: %w", err)
	}
	version, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return fmt.Errorf("encoding the layout's version: %w", err)
	}
	t := tar.NewWriter(w)
	for _, f := range []File{
		{Path: v1.ImageLayoutFile, Body: version},
		{Path: v1.ImageIndexFile, Body: index},
	} {
		if err := writeEntry(t, f); err != nil {
			return err
		}
	}
	for _, d := range l.order {
		path := v1.ImageBlobsDir + "/" + d.Algorithm().String() + "/" + d.Encoded()
		if err := writeEntry(t, File{Path: path, Body: l.blobs[d]}); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return nil
}

// writeEntry writes one file, with a header that does not depend on the machine.
func writeEntry(t *tar.Writer, f File) error {
	h := &tar.Header{
		Name:    f.Path,
		Mode:    int64(f.Mode.Perm()),
		Uid:     f.UID,
		Gid:     f.GID,
		ModTime: time.Unix(0, 0),
		Format:  tar.FormatPAX,
	}
	if f.Mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	if f.Mode&fs.ModeSetgid != 0 {
		h.Mode |= 0o2000
	}
	if f.Mode&fs.ModeSetuid != 0 {
		h.Mode |= 0o4000
	}
	switch {
	case f.Mode.IsDir():
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case f.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
	case f.Mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, int64(len(f.Body))
		if f.Mode == 0 {
			h.Mode = 0o644
		}
	default:
		return fmt.Errorf("writing %q: files of type %s are not supported", f.Path, f.Mode.Type())
	}
	if err := t.WriteHeader(h); err != nil {
		return fmt.Errorf("writing the header of %q: %w", f.Path, err)
	}
	if h.Size == 0 {
		return nil
	}
	if _, err := io.Copy(t, bytes.NewReader(f.Body)); err != nil {
		return fmt.Errorf("writing %q: %w", f.Path, err)
	}
	return nil
}
