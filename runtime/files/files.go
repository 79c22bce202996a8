// Package files copies files and directories between this machine and containers. The file system
// of a container is made by others: its links are never followed out of it, what its processes
// change meanwhile does no harm, and neither does an archive that they have written.
package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// Entry is one file of a copy, as in an archive. Its name is relative to what is copied, which is "."
// itself; so is the name that a hard link links to.
type Entry struct {
	tar.Header
	Content io.Reader // of a regular file, nil if it is empty; it may be shorter than the size
	id      fileID    // of a directory
}

// fileID identifies a file of this machine; the zero value stands for none.
type fileID struct{ dev, ino uint64 }

// Top is what a path says about what is copied.
type Top struct {
	Base string // its name
	// Contents says that only what a directory has is copied, not the directory itself.
	Contents bool
	// Archive says that it is an archive, which has several files or none.
	Archive bool
}

// Source is where files come from.
type Source interface {
	Top() Top
	// Walk calls put with what is copied, and, if that is a directory, with everything below it, directories before
	// what they have. Names of an archive may be anything.
	Walk(ctx context.Context, put func(Entry) error) error
}

// Target is a path to which files go.
type Target interface {
	// Look returns what is there, where links lead.
	Look(ctx context.Context) (Kind, error)
	// Slash reports whether the path can only be that of a directory.
	Slash() bool
	// Open opens the directory that is there, or the one that has or gets what is there. It returns the
	// name in the latter.
	Open(ctx context.Context, into bool) (s Sink, name string, err error)
}

// Sink is a directory that gets files.
type Sink interface {
	// Put makes a file. Its name is relative to the directory and was checked with filepath.IsLocal.
	Put(ctx context.Context, e Entry) error
	// Close completes what Put has made. It is called after errors as well.
	Close() error
	// id identifies the directory, if it is on this machine.
	id() fileID
}

// Place is a path from which and to which files can be copied.
type Place interface {
	Source
	Target
}

// Options say whom to tell about a copy.
type Options struct {
	// Progress, if set, is called with how many bytes have been copied, and of how many, 0 if that is not known.
	Progress func(done, total int64)
	// Skipped is called for files that cannot be copied and are left out.
	Skipped func(name, why string)
}

// Copy copies files to where "docker cp" does.
func Copy(ctx context.Context, from Source, to Target, o Options) (err error) {
	c := &copying{top: from.Top(), to: to, o: o}
	if c.top.Archive {
		if err := c.open(ctx, true); err != nil {
			return err
		}
	}
	err = from.Walk(ctx, func(e Entry) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return c.put(ctx, e)
	})
	if c.sink != nil {
		err = errors.Join(err, c.sink.Close())
	}
	return err
}

// copying is a copy that goes on.
type copying struct {
	top  Top
	to   Target
	o    Options
	sink Sink
	// name is that of the top in the sink, empty if only its contents are copied.
	name        string
	done, total int64
}

// open opens the target, for a directory or for something else.
func (c *copying) open(ctx context.Context, dir bool) error {
	kind, err := c.to.Look(ctx)
	if err != nil {
		return err
	}
	into, err := place(c.top, dir, kind, c.to.Slash())
	if err != nil {
		return err
	}
	if c.sink, c.name, err = c.to.Open(ctx, into); err != nil {
		return err
	}
	switch {
	case into && c.top.Contents || c.top.Archive:
		c.name = ""
	case into:
		c.name = c.top.Base
	}
	return nil
}

func (c *copying) put(ctx context.Context, e Entry) error {
	if c.sink == nil {
		if err := c.open(ctx, e.Typeflag == tar.TypeDir); err != nil {
			return err
		}
		if e.Typeflag == tar.TypeReg {
			c.total = e.Size
		}
	}
	if e.id != (fileID{}) && e.id == c.sink.id() {
		return errors.New("cannot copy a directory into itself")
	}
	if kind := special(e.Typeflag); kind != "" {
		return c.skip(e.Name, kind)
	}
	shown := e.Name
	if err := c.rename(&e); err != nil || e.Name == "" {
		return err
	}
	if e.Content != nil {
		e.Content = &counted{Reader: e.Content, ended: func() error { return context.Cause(ctx) }, c: c}
	}
	err := c.sink.Put(ctx, e)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if err != nil && shown != "." {
		return fmt.Errorf("%q: %w", shown, err)
	}
	return err
}

// skip leaves a file out that cannot be copied, unless nothing else was to be copied.
func (c *copying) skip(name, kind string) error {
	if name == "." {
		return fmt.Errorf("%s cannot be copied", kind)
	}
	if c.o.Skipped != nil {
		c.o.Skipped(name, kind)
	}
	return nil
}

// rename gives an entry the names that it has in the sink.
func (c *copying) rename(e *Entry) (err error) {
	if e.Name, err = c.place(e.Name); err == nil && e.Typeflag == tar.TypeLink {
		e.Linkname, err = c.place(e.Linkname)
	}
	return err
}

// place returns the name in the sink of something that is copied, empty for the sink itself. Leading slashes are
// dropped, as tar does.
func (c *copying) place(name string) (string, error) {
	local := strings.TrimLeft(name, "/")
	if local == "" {
		local = "."
	}
	if !filepath.IsLocal(local) || strings.Contains(local, "\x00") {
		return "", fmt.Errorf("the name %q leads out of what is copied", name)
	}
	local = path.Join(c.name, local)
	if local == "." {
		return "", nil
	}
	return local, nil
}

// special returns what a file is that is not copied, empty if it is.
func special(typeflag byte) string {
	switch typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		return ""
	case tar.TypeFifo:
		return "a named pipe"
	case tar.TypeChar:
		return "a character device"
	case tar.TypeBlock:
		return "a block device"
	case typeSocket:
		return "a socket"
	case typeKernel:
		return "a file system of the kernel"
	}
	return "a file of unknown type"
}

// Types of files that archives do not have.
const (
	typeSocket = 's'
	typeKernel = 'k' // a directory of a file system that has nothing but what the kernel says at the moment
)

// counted is the content of a file that is being copied, until it ends.
type counted struct {
	io.Reader
	ended func() error
	c     *copying
}

func (r *counted) Read(p []byte) (int, error) {
	if cause := r.ended(); cause != nil {
		return 0, cause
	}
	n, err := r.Reader.Read(p)
	r.add(int64(n))
	return n, err
}

// skipHole skips zeros that are not stored, and returns how many.
func (r *counted) skipHole() int64 {
	h, ok := r.Reader.(holey)
	if !ok {
		return 0
	}
	n := h.skipHole()
	r.add(n)
	return n
}

func (r *counted) add(n int64) {
	r.c.done += n
	if r.c.o.Progress != nil && n > 0 {
		r.c.o.Progress(r.c.done, max(r.c.total, 0))
	}
}

// holey is a content with holes.
type holey interface{ skipHole() int64 }
