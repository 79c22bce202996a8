package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory for decompression, in bytes, as the zstd program does.
const maxWindow = 128 << 20

// Archive is a file or directory that holds images: an OCI or Docker archive, plain or
// compressed by gzip or zstd, or an OCI layout.
type Archive struct {
	Path string
	// Name, if set, is the normalised reference of the one image in it, whatever the archive calls that.
	Name string
	// OnRead, if set, is called by the readers of Open when they have read more of the archive's
	// files: so many bytes, of all.
	OnRead func(done, total int64)
	layout bool // a directory
}

// Archives returns the archives at a path: the file or OCI layout that it is, else those in the
// directory, by name. They are recognised by their content. unknown has an error with the path
// for everything else that is there, except for files whose names begin with a dot.
func Archives(path string) (found []Archive, unknown []error, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for images: %w", err)
	}
	add := func(path string) {
		a, err := identify(path)
		if err != nil {
			unknown = append(unknown, err)
			return
		}
		found = append(found, a)
	}
	single := !info.IsDir()
	if _, err := os.Stat(filepath.Join(path, layoutFile)); single || err == nil {
		add(path)
		return found, unknown, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for images: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			add(filepath.Join(path, e.Name()))
		}
	}
	return found, unknown, nil
}

func identify(path string) (Archive, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Archive{}, fmt.Errorf("looking for images: %w", err)
	}
	a := Archive{Path: path, layout: info.IsDir()}
	switch {
	case a.layout:
		if _, err := os.Stat(filepath.Join(path, layoutFile)); err != nil {
			return Archive{}, fmt.Errorf("%s: not an OCI image layout: it has no file %s", path, layoutFile)
		}
		return a, nil
	case !info.Mode().IsRegular():
		return Archive{}, fmt.Errorf("%s: neither a file nor a directory", path)
	}
	r, err := a.stream(nil)
	if err != nil {
		return Archive{}, err
	}
	defer func() { _ = r.Close() }()
	if _, err := tar.NewReader(r).Next(); err != nil {
		return Archive{}, fmt.Errorf("%s: not an image archive: not a tar file, plain or compressed with gzip or zstd", path)
	}
	return a, nil
}

// Open returns the archive as an uncompressed tar stream, which the caller closes.
func (a Archive) Open() (io.ReadCloser, error) {
	m, err := a.meter()
	if err != nil {
		return nil, err
	}
	return a.stream(m)
}

// stream returns the archive as an uncompressed tar stream. m, if not nil, counts what is read.
func (a Archive) stream(m *meter) (io.ReadCloser, error) {
	if a.layout {
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(a.writeLayout(w, m)) }() // always nil
		return r, nil
	}
	opened, err := os.Open(a.Path)
	if err != nil {
		return nil, fmt.Errorf("opening images: %w", err)
	}
	f := m.file(opened)
	r, err := decompress(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening images %s: %w", a.Path, err), f.Close())
	}
	return r, nil
}

// decompress returns the file's content, decompressed if its first bytes say so. Closing it
// closes the file. A plain file is returned itself, so that a tar reader can seek.
func decompress(f io.ReadSeekCloser) (io.ReadCloser, error) {
	magic := make([]byte, 4)
	n, err := io.ReadFull(f, magic)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	switch magic = magic[:n]; {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(bufio.NewReaderSize(f, 64<<10))
		if err != nil {
			return nil, err
		}
		return unpacked{z, f}, nil
	case isZstd(magic):
		z, err := zstd.NewReader(f, zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return unpacked{z.IOReadCloser(), f}, nil
	default:
		return f, nil
	}
}

// isZstd reports whether a file begins with a frame, or a skippable frame, of zstd (RFC 8878,
// section 3.1).
func isZstd(magic []byte) bool {
	return bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18})
}

// unpacked is a decompressed file.
type unpacked struct {
	io.ReadCloser
	file io.Closer
}

// Close closes the decompressor and the file.
func (u unpacked) Close() error {
	return errors.Join(u.ReadCloser.Close(), u.file.Close())
}

// writeLayout writes an OCI layout as a tar stream, the index first, then the blobs.
func (a Archive) writeLayout(w io.Writer, m *meter) error {
	out, dir := tar.NewWriter(w), a.Path
	for _, name := range []string{layoutFile, indexFile} {
		if err := writeFile(out, dir, name, m); err != nil {
			return err
		}
	}
	err := fs.WalkDir(os.DirFS(dir), "blobs", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading OCI layout: %w", err)
		}
		if d.IsDir() {
			return nil
		}
		return writeFile(out, dir, name, m)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func writeFile(out *tar.Writer, dir, name string, m *meter) error {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("reading OCI layout: %w", err)
	}
	if !info.Mode().IsRegular() { // to open a pipe would wait for its writer
		return fmt.Errorf("reading OCI layout: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading OCI layout: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := out.WriteHeader(&tar.Header{Name: name, Size: info.Size(), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	if _, err := io.Copy(out, m.file(f)); err != nil {
		return fmt.Errorf("reading OCI layout file %s: %w", path, err)
	}
	return nil
}
