package image

import (
	"archive/tar"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
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
// unnamed are the digests of those without a name. An archive of which no image has a name is an error, since
// nothing could refer to them.
func (a Archive) Refs() (refs map[string]string, unnamed []string, err error) {
	t, err := a.contents()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the index of images %s: %w", a.Path, err)
	}
	refs = map[string]string{}
	switch {
	case t.layout && t.index != nil:
		unnamed, err = a.indexRefs(*t.index, refs)
	case t.layout:
		err = fmt.Errorf("it has %s but no %s", layoutFile, indexFile)
	case t.docker != nil:
		unnamed, err = dockerRefs(t.docker, refs)
	default:
		err = fmt.Errorf("it has neither %s nor %s", layoutFile, manifestFile)
	}
	unnamed = slices.DeleteFunc(unnamed, func(digest string) bool {
		return slices.Contains(slices.Collect(maps.Values(refs)), digest) // which has a name elsewhere in it
	})
	if err == nil && a.Name != "" {
		refs, err = a.renamed(refs, unnamed)
		unnamed = nil
	}
	if err == nil && len(refs) == 0 {
		err = NoNameError(unnamed)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the index of images %s: %w", a.Path, err)
	}
	return refs, unnamed, nil
}

// NoNameError has the digests of images that have no name. It says how to give them one.
type NoNameError []string

func (e NoNameError) Error() string {
	what := "no image in it has a name"
	if len(e) > 0 {
		what = "image " + strings.Join(e, ", ") + " has no name"
	}
	return what + `: save it by its name (docker save NAME:TAG), or name it: "runonce images import --name NAME:TAG FILE"`
}

// renamed returns the one image of the archive under the archive's Name.
func (a Archive) renamed(refs map[string]string, unnamed []string) (map[string]string, error) {
	all := append(slices.Collect(maps.Values(refs)), unnamed...)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != 1 {
		return nil, fmt.Errorf("it has %d images, so no single one can be named %s", len(all), a.Name)
	}
	if !strings.HasPrefix(all[0], "sha256:") {
		all[0] = ""
	}
	return map[string]string{a.Name: all[0]}, nil
}

// repository returns the archive's file name without the extensions of its format.
func (a Archive) repository() string {
	name := filepath.Base(a.Path)
	for _, ext := range []string{".zst", ".zstd", ".gz", ".tgz", ".tar", ".oci", ".docker"} {
		name = strings.TrimSuffix(name, ext)
	}
	return strings.ToLower(name)
}

func (a Archive) indexRefs(index ocispec.Index, refs map[string]string) (unnamed []string, err error) {
	for _, m := range index.Manifests {
		name, err := a.ImageName(m.Annotations)
		if err != nil {
			return nil, err
		}
		if name == "" {
			unnamed = append(unnamed, m.Digest.String())
			continue
		}
		refs[name] = m.Digest.String()
	}
	return unnamed, nil
}

func dockerRefs(images []dockerImage, refs map[string]string) (unnamed []string, err error) {
	for _, img := range images {
		if len(img.RepoTags) == 0 {
			unnamed = append(unnamed, cmp.Or(configDigest(img.Config), img.Config))
		}
		for _, tag := range img.RepoTags {
			full, err := Normalize(tag)
			if err != nil {
				return nil, err
			}
			refs[full] = configDigest(img.Config)
		}
	}
	return unnamed, nil
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
// when it has none: the archive's Name, if it has one. The annotation org.opencontainers.image.ref.name may be a reference or only a tag, whose repository
// is then the name of the archive's file.
func (a Archive) ImageName(annotations map[string]string) (string, error) {
	if a.Name != "" {
		return a.Name, nil
	}
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
