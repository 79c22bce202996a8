package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	layoutFile   = ocispec.ImageLayoutFile
	indexFile    = ocispec.ImageIndexFile
	manifestFile = "manifest.json" // of a Docker archive
	// containerdName is the annotation with the image's full name that containerd and Docker
	// write to an index.
	containerdName = "io.containerd.image.name"
	// maxIndex bounds the size of an archive's index, in bytes.
	maxIndex = 16 << 20
)

// dockerImage is an entry of a Docker archive's manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
}

// contents are the indexes that an archive may have.
type contents struct {
	layout bool
	index  *ocispec.Index
	docker []dockerImage
}

// Refs returns the images in the archive by their normalised references, each with the digest
// of its manifest or index, or in a Docker archive of its configuration (an image's ID), empty
// when that is not known: who has an image of that name and digest need not import the archive.
// An archive whose images have no names is an error, since nothing could refer to them.
func (a Archive) Refs() (map[string]string, error) {
	t, err := a.contents()
	if err != nil {
		return nil, fmt.Errorf("reading the index of images %s: %w", a.Path, err)
	}
	refs := map[string]string{}
	switch {
	case t.layout && t.index != nil:
		err = a.indexRefs(*t.index, refs)
	case t.layout:
		err = fmt.Errorf("it has %s but no %s", layoutFile, indexFile)
	case t.docker != nil:
		err = dockerRefs(t.docker, refs)
	default:
		err = fmt.Errorf("it has neither %s nor %s", layoutFile, manifestFile)
	}
	if err == nil && len(refs) == 0 {
		err = errors.New("no image in it has a name")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the index of images %s: %w", a.Path, err)
	}
	return refs, nil
}

// repository returns the archive's file name without the extensions of its format.
func (a Archive) repository() string {
	name := filepath.Base(a.Path)
	for _, ext := range []string{".zst", ".zstd", ".gz", ".tgz", ".tar", ".oci", ".docker"} {
		name = strings.TrimSuffix(name, ext)
	}
	return strings.ToLower(name)
}

func (a Archive) indexRefs(index ocispec.Index, refs map[string]string) error {
	for _, m := range index.Manifests {
		name, err := a.ImageName(m.Annotations)
		if err != nil {
			return err
		}
		if name != "" {
			refs[name] = m.Digest.String()
		}
	}
	return nil
}

func dockerRefs(images []dockerImage, refs map[string]string) error {
	for _, img := range images {
		for _, tag := range img.RepoTags {
			full, err := Normalize(tag)
			if err != nil {
				return err
			}
			refs[full] = configDigest(img.Config)
		}
	}
	return nil
}

// configDigest returns the digest in the name of a Docker archive's configuration file:
// HEX.json, sha256:HEX or blobs/sha256/HEX.
func configDigest(file string) string {
	name := strings.TrimPrefix(strings.TrimSuffix(path.Base(file), ".json"), "sha256:")
	const hexDigits = "0123456789abcdef"
	if len(name) != 64 || strings.Trim(name, hexDigits) != "" {
		return ""
	}
	return "sha256:" + name
}

// contents reads the indexes. It stops at an OCI index, which has precedence, but has to read
// all of an archive that has only Docker's.
func (a Archive) contents() (contents, error) {
	var t contents
	r, err := a.stream(nil)
	if err != nil {
		return t, err
	}
	defer func() { _ = r.Close() }()
	in := tar.NewReader(r)
	for !t.layout || t.index == nil {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return t, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		switch path.Clean(h.Name) {
		case layoutFile:
			t.layout = true
		case indexFile:
			err = decodeJSON(in, &t.index)
		case manifestFile:
			err = decodeJSON(in, &t.docker)
		}
		if err != nil {
			return t, fmt.Errorf("reading %s: %w", h.Name, err)
		}
	}
	return t, nil
}

func decodeJSON(r io.Reader, v any) error {
	data, err := io.ReadAll(io.LimitReader(r, maxIndex+1))
	if err != nil {
		return err
	}
	if len(data) > maxIndex {
		return fmt.Errorf("larger than %d bytes", maxIndex)
	}
	return json.Unmarshal(data, v)
}

// ImageName returns the full name of an image by its annotations in the archive's OCI index, empty
// when it has none. The annotation org.opencontainers.image.ref.name may be a reference or only a tag, whose repository
// is then the name of the archive's file.
func (a Archive) ImageName(annotations map[string]string) (string, error) {
	if name := annotations[containerdName]; name != "" {
		return Normalize(name)
	}
	tag := annotations[ocispec.AnnotationRefName]
	if tag == "" {
		return "", nil
	}
	ref := tag
	if !strings.ContainsAny(tag, "/:@") {
		ref = a.repository() + ":" + tag
	}
	return Normalize(ref)
}
