package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/files"
)

// maxTarErrors bounds what is kept of the messages of tar, in bytes.
const maxTarErrors = 4 << 10

// ErrNoTar says that a container has no program for archives.
var ErrNoTar = errors.New("its image has no tar, with which files are copied on a cluster")

// Path is a path in a container. Files are copied with the tar of its image, as "kubectl cp" does.
type Path struct {
	name string // below the root directory
	// exec runs a command in the container.
	exec func(ctx context.Context, command []string, s engine.Streams) (int32, error)
}

// FilePath returns a path in a container of the pod.
func (p *Pods) FilePath(pod *v1.Pod, container, name string) *Path {
	return &Path{name, func(ctx context.Context, command []string, s engine.Streams) (int32, error) {
		return p.Exec(ctx, pod, container, command, s)
	}}
}

var _ files.Place = (*Path)(nil)

// Top says what the path means as a source.
func (p *Path) Top() files.Top { return files.TopOf(p.name) }

// Slash reports whether the path is that of a directory, by its end.
func (p *Path) Slash() bool { return files.IsDirectory(p.name) }

// split returns the directory of the path, and its name there.
func (p *Path) split() (dir, name string) {
	if p.Slash() {
		return "/" + p.name, "."
	}
	dir, name = path.Split(p.name)
	return "/" + dir, name
}

// Walk reads what tar archives.
func (p *Path) Walk(ctx context.Context, put func(files.Entry) error) error {
	dir, name := p.split()
	r, end := p.read(ctx, "tar", "cf", "-", "-C", dir, "./"+name)
	a := files.Archive{R: r, Below: name}
	if name == "." {
		a.Below = ""
	}
	return end(a.Walk(ctx, put))
}

// read begins a command and returns what it writes. end ends it, at once after an error, and returns the error given,
// or that of the command.
func (p *Path) read(ctx context.Context, command ...string) (r io.Reader, end func(error) error) {
	ctx, cancel := context.WithCancel(ctx)
	out, w := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		err := p.run(ctx, engine.Streams{Stdout: w}, command)
		failed <- err
		_ = w.CloseWithError(err)
	}()
	return out, func(err error) error {
		if err != nil {
			cancel()
		}
		_, _ = io.Copy(io.Discard, out) // the rest, which client-go would complain about
		ended := <-failed
		cancel()
		if err == nil {
			return ended
		}
		return err
	}
}

// run runs tar, and returns why it has failed.
func (p *Path) run(ctx context.Context, s engine.Streams, command []string) error {
	var messages limited
	s.Stderr = &messages
	code, err := p.exec(ctx, command, s)
	switch {
	case code == 126 || code == 127 || err != nil && strings.Contains(err.Error(), "executable file not found"):
		return ErrNoTar
	case err != nil:
		return err
	case code != 0:
		return tarError{int(code), strings.TrimSpace(string(messages))}
	}
	return nil
}

// tarError is what tar has said.
type tarError struct {
	code     int
	messages string
}

func (e tarError) Error() string {
	if e.messages == "" {
		return fmt.Sprintf("tar in the container: exit code %d", e.code)
	}
	return fmt.Sprintf("%q", e.messages)
}

// limited keeps the first maxTarErrors bytes that are written to it.
type limited []byte

func (l *limited) Write(p []byte) (int, error) {
	*l = append(*l, p[:min(len(p), maxTarErrors-len(*l))]...)
	return len(p), nil
}

// Look has tar archive what is at the path if that is a directory, without what it has.
func (p *Path) Look(ctx context.Context) (files.Kind, error) {
	var said tarError
	err := p.run(ctx, engine.Streams{Stdout: io.Discard}, []string{"tar", "chf", "-", "--no-recursion", "-C", "/", "./" + strings.Trim(p.name, "/") + "/."})
	switch {
	case err == nil:
		return files.Directory, nil
	case errors.As(err, &said) && strings.Contains(said.messages, "Not a directory"):
		return files.File, nil
	case errors.As(err, &said) && strings.Contains(said.messages, "No such file or directory"):
		return files.Absent, nil
	}
	return files.Absent, err
}

// Open has tar extract an archive.
func (p *Path) Open(ctx context.Context, into bool) (files.Sink, string, error) {
	dir, name := "/"+p.name, ""
	if !into {
		dir, name = path.Split("/" + strings.TrimRight(p.name, "/"))
	}
	r, w := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		err := p.run(ctx, engine.Streams{Stdin: r}, []string{"tar", "xpf", "-", "-C", dir})
		failed <- err
		if err == nil {
			err = io.ErrClosedPipe
		}
		_ = r.CloseWithError(err)
	}()
	return files.NewArchive(w, func() error {
		_ = w.Close()
		return <-failed
	}), name, nil
}
