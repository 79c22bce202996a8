package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Follow passes on the log at path as Read does and goes on with what is written after,
// across rotations and into the logs of the instances that come after this one. It ends
// without an error when ended is closed, which says that nothing more is written: what
// was written until then is passed on. It ends with the context's cause when ctx is done.
// The error wraps fs.ErrNotExist when there is no log to begin with.
func Follow(ctx context.Context, path string, to Sinks, o Options, ended <-chan struct{}) error {
	// Watching begins before the first read, so that no change falls in between.
	watch := watchDir(filepath.Dir(path))
	defer watch.close()
	f := &follower{path: path, printer: newPrinter(to, o)}
	defer f.close()
	if err := f.begin(o.Tail); err != nil {
		return err
	}
	for last := false; ; {
		if err := f.catchUp(ctx); err != nil {
			return err
		}
		if last {
			return f.printer.flush()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
			last = true // once more, for what was written before
		case <-watch.changed:
		}
	}
}

// follower is a place in the logs of a container.
type follower struct {
	path    string // of the current instance's log
	file    *os.File
	printer *printer
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close() // it was only read
	}
}

// begin takes its place at the log's beginning, or passes on the last lines and takes its
// place after them.
func (f *follower) begin(tail int) error {
	s, err := takeSnapshot(f.path)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	if tail <= 0 {
		f.file, s.files = s.files[0], s.files[1:]
		return nil
	}
	raw, err := s.lastEntries(tail, 0)
	if err != nil {
		return err
	}
	last := len(s.files) - 1
	if _, err := s.files[last].Seek(s.sizes[last], io.SeekStart); err != nil {
		return fmt.Errorf("reading log: %w", err)
	}
	f.file, s.files = s.files[last], s.files[:last]
	if _, err := f.printer.Write(raw); err != nil {
		return fmt.Errorf("passing on log %s: %w", f.path, err)
	}
	return nil
}

// catchUp passes on all that is there by now.
func (f *follower) catchUp(ctx context.Context) error {
	for {
		if err := drain(ctx, f.printer, f.file); err != nil {
			return err
		}
		next, file, err := f.openSuccessor()
		if err != nil || file == nil {
			return err
		}
		// Something may have been written between the last read and the rotation.
		err = drain(ctx, f.printer, f.file)
		f.close()
		f.file = file
		if err != nil {
			return err
		}
		if next.log != f.path {
			// The instance before has ended, and with it its last line.
			f.path = next.log
			if err := f.printer.endLines(); err != nil {
				return err
			}
		}
	}
}

// place is a file of a container's logs.
type place struct {
	file string
	log  string // the current log of the instance that wrote it
}

// openSuccessor opens the file that comes after the current one; nil when there is none yet.
func (f *follower) openSuccessor() (place, *os.File, error) {
	for {
		next, err := f.successor()
		if err != nil || next.file == "" {
			return place{}, nil, err
		}
		file, err := os.Open(next.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotated away or removed in between
		}
		if err != nil {
			return place{}, nil, fmt.Errorf("reading log: %w", err)
		}
		// A rotation in between gives a later file the name of the one that was found.
		again, err := f.successor()
		if err == nil && again == next {
			return next, file, nil
		}
		_ = file.Close() // nothing was read
		if err != nil {
			return place{}, nil, err
		}
	}
}

// successor finds the file that comes after the current one; none when there is none yet.
func (f *follower) successor() (place, error) {
	info, err := os.Stat(f.path)
	if err == nil && f.holds(info) {
		return f.nextAttempt()
	}
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return place{}, fmt.Errorf("reading log: %w", err)
	}
	paths, err := rotatedFiles(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return place{}, nil // the whole directory was removed
	}
	if err != nil {
		return place{}, err
	}
	if exists {
		paths = append(paths, f.path)
	}
	// The newest first: it is mostly among those.
	for i, p := range slices.Backward(paths) {
		if info, err := os.Stat(p); err == nil && f.holds(info) {
			paths = paths[i+1:]
			break
		}
	}
	// When the current file is not among them, it was the oldest and has been removed.
	if len(paths) == 0 {
		return place{}, nil
	}
	return place{paths[0], f.path}, nil
}

func (f *follower) holds(info fs.FileInfo) bool {
	own, err := f.file.Stat()
	return err == nil && os.SameFile(own, info)
}

// nextAttempt finds the first file of the container's next instance, if there is one.
func (f *follower) nextAttempt() (place, error) {
	attempt, ok := attemptOf(f.path)
	if !ok {
		return place{}, nil
	}
	dir := filepath.Dir(f.path)
	last, err := LastAttempt(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return place{}, err
	}
	for n := attempt + 1; n <= last; n++ {
		path := filepath.Join(dir, attemptName(n))
		rotated, err := rotatedFiles(path)
		if err != nil {
			return place{}, err
		}
		if len(rotated) > 0 {
			return place{rotated[0], path}, nil
		}
		if _, err := os.Stat(path); err == nil {
			return place{path, path}, nil
		}
		// This one's log was removed.
	}
	return place{}, nil
}
