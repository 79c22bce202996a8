package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// renamed copies a tar stream, which it closes, with the full names of the images in its OCI
// index.
func (a Archive) renamed(in io.ReadCloser) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		err := a.copyRenamed(tar.NewWriter(w), tar.NewReader(in))
		_ = w.CloseWithError(errors.Join(err, in.Close())) // always nil
	}()
	return r
}

func (a Archive) copyRenamed(out *tar.Writer, in *tar.Reader) error {
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return fmt.Errorf("reading images %s: %w", a.Path, err)
		}
		// Only what an importer needs: other parts of a header may not be writable.
		plain := &tar.Header{Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Size: h.Size, Mode: 0o644}
		if h.Typeflag == tar.TypeReg && path.Clean(h.Name) == indexFile {
			err = a.writeIndex(out, in)
		} else if err = out.WriteHeader(plain); err == nil {
			_, err = io.Copy(out, in)
		}
		if err != nil {
			return fmt.Errorf("copying %s of images %s: %w", h.Name, a.Path, err)
		}
	}
}

// writeIndex copies an OCI index with full names.
func (a Archive) writeIndex(out *tar.Writer, in io.Reader) error {
	data, err := readIndex(in)
	if err != nil {
		return err
	}
	if data, err = a.nameImages(data); err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: indexFile, Size: int64(len(data)), Mode: 0o644}); err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

// nameImages adds the annotation with the full name to each named entry of an OCI index.
// Importers take that as it is.
func (a Archive) nameImages(index []byte) ([]byte, error) {
	type object map[string]json.RawMessage
	var top object
	if err := json.Unmarshal(index, &top); err != nil {
		return nil, err
	}
	var entries []object
	if m, ok := top["manifests"]; ok {
		if err := json.Unmarshal(m, &entries); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		annotations := map[string]string{}
		if m, ok := e["annotations"]; ok {
			if err := json.Unmarshal(m, &annotations); err != nil {
				return nil, err
			}
		}
		name, err := a.entryName(annotations)
		if err != nil {
			return nil, err
		}
		if name == "" {
			continue
		}
		annotations[containerdName] = name
		if e["annotations"], err = json.Marshal(annotations); err != nil {
			return nil, err
		}
	}
	var err error
	if top["manifests"], err = json.Marshal(entries); err != nil {
		return nil, err
	}
	return json.Marshal(top)
}

// entryName returns the full name of an image in an OCI index, empty when it has none.
func (a Archive) entryName(annotations map[string]string) (string, error) {
	if name := annotations[containerdName]; name != "" {
		return Normalize(name)
	}
	tag := annotations[ocispec.AnnotationRefName]
	if tag == "" {
		return "", nil
	}
	name := a.refName(tag)
	if name == "" {
		return "", invalidName(tag, errors.New("neither a reference nor a tag"))
	}
	return name, nil
}
