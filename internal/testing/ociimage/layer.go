package ociimage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// layer is a packed layer.
type layer struct {
	mediaType string
	diffID    digest.Digest
	body      []byte
}

func packLayer(files []File, c Compression) (layer, error) {
	var raw bytes.Buffer
	t := tar.NewWriter(&raw)
	for _, f := range withParents(files) {
		if err := writeEntry(t, f); err != nil {
			return layer{}, err
		}
	}
	if err := t.Close(); err != nil {
		return layer{}, fmt.Errorf("ending the layer: %w", err)
	}
	l := layer{diffID: sum(raw.Bytes())}
	var err error
	switch c {
	case None:
		l.mediaType, l.body = v1.MediaTypeImageLayer, raw.Bytes()
	case Gzip, "":
		l.mediaType = v1.MediaTypeImageLayerGzip
		l.body, err = compress(raw.Bytes(), gzipWriter)
	case Zstd:
		l.mediaType = v1.MediaTypeImageLayerZstd
		l.body, err = compress(raw.Bytes(), zstdWriter)
	default:
		err = fmt.Errorf("unknown compression %q", c)
	}
	if err != nil {
		return layer{}, fmt.Errorf("compressing the layer: %w", err)
	}
	return l, nil
}

func gzipWriter(w io.Writer) (io.WriteCloser, error) {
	return gzip.NewWriter(w), nil
}

func zstdWriter(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
}

func compress(raw []byte, open func(io.Writer) (io.WriteCloser, error)) ([]byte, error) {
	var out bytes.Buffer
	w, err := open(&out)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// withParents cleans the paths and adds missing parent directories.
func withParents(files []File) []File {
	out := make([]File, 0, 2*len(files))
	seen := map[string]bool{".": true, "": true}
	for _, f := range files {
		f.Path = strings.TrimPrefix(path.Clean("/"+f.Path), "/")
		out = append(out, missingParents(f.Path, seen)...)
		if f.Path == "" || (f.Mode.IsDir() && seen[f.Path]) {
			continue
		}
		seen[f.Path] = true
		out = append(out, f)
	}
	return out
}

func missingParents(name string, seen map[string]bool) []File {
	var out []File
	for i, c := range name {
		if c != '/' || seen[name[:i]] {
			continue
		}
		seen[name[:i]] = true
		out = append(out, File{Path: name[:i], Mode: fs.ModeDir | 0o755})
	}
	return out
}
