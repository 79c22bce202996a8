package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Archive is a stream of tar as a source, which has anything.
type Archive struct {
	R io.Reader
	// Below, if it is set, is the name of what was archived. Other names are errors.
	Below string
}

// Top says that it is an archive.
func (a *Archive) Top() Top { return Top{Archive: true} }

// Walk reads the archive.
func (a *Archive) Walk(_ context.Context, put func(Entry) error) error {
	r := tar.NewReader(a.R)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		e := Entry{Header: *h}
		if e.Name, err = a.name(h.Name); err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeLink:
			if e.Linkname, err = a.name(h.Linkname); err != nil {
				return err
			}
		case tar.TypeReg, tar.TypeGNUSparse:
			if e.Typeflag = tar.TypeReg; h.Size > 0 {
				e.Content = r
			}
		}
		if err := put(e); err != nil {
			return err
		}
	}
}

// name returns a name relative to what was archived.
func (a *Archive) name(name string) (string, error) {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if a.Below == "" {
		return clean, nil
	}
	if clean == a.Below {
		return ".", nil
	}
	below, ok := strings.CutPrefix(clean, a.Below+"/")
	if !ok {
		return "", fmt.Errorf("reading the archive: %q is not below %q", name, a.Below)
	}
	return below, nil
}

// Stream is a stream of tar as a target: a directory that is there.
type Stream struct{ W io.Writer }

// Look returns that it is a directory.
func (Stream) Look(context.Context) (Kind, error) { return Directory, nil }

// Slash reports false: it has no path.
func (Stream) Slash() bool { return false }

// Open begins the archive.
func (s Stream) Open(context.Context, bool) (Sink, string, error) {
	return NewArchive(s.W, func() error { return nil }), "", nil
}

// NewArchive returns a sink that writes tar, and that calls end when nothing more is written. An error of end that
// was that of a write before is returned once.
func NewArchive(w io.Writer, end func() error) Sink { return &archiver{w: tar.NewWriter(w), end: end} }

// archiver writes a stream of tar.
type archiver struct {
	w      *tar.Writer
	end    func() error
	failed error
}

func (*archiver) id() fileID { return fileID{} }

// Put writes a file. One that has become shorter meanwhile is filled up with zeros, as tar does.
func (a *archiver) Put(_ context.Context, e Entry) error {
	a.failed = a.write(e)
	return a.failed
}

func (a *archiver) write(e Entry) error {
	h := e.Header
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if err := a.w.WriteHeader(&h); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	if e.Content == nil {
		return nil
	}
	n, err := io.Copy(a.w, e.Content)
	for err == nil && n < h.Size {
		var filled int
		filled, err = a.w.Write(zeros[:min(h.Size-n, chunk)])
		n += int64(filled)
	}
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// Close ends the archive. After an error it is not one.
func (a *archiver) Close() error {
	if a.failed == nil {
		if a.failed = a.w.Close(); a.failed != nil {
			return errors.Join(fmt.Errorf("writing the archive: %w", a.failed), a.ended())
		}
	}
	return a.ended()
}

func (a *archiver) ended() error {
	if err := a.end(); !errors.Is(a.failed, err) {
		return err
	}
	return nil
}
