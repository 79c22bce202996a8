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

// Follow copies the log at path as Read does and continues with what is written after, across
// rotations. When ended is closed, nothing more is written: Follow returns nil after it has
// copied the rest. It returns the context's cause when ctx is done. The error wraps
// fs.ErrNotExist when there is no log to begin with.
func Follow(ctx context.Context, path string, to Sinks, o Options, ended <-chan struct{}) error {
	// The watch starts before the first read, so that no change is lost in between.
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
		case <-watch.tick:
		}
	}
}

// follower is a position in a log.
type follower struct {
	path    string
	file    *os.File
	printer *printer
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close() // it was only read
	}
}

// begin starts at the beginning of the log, or copies the last lines and starts after them.
func (f *follower) begin(tail *int) error {
	s, err := takeSnapshot(f.path)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	if tail == nil {
		f.file, s.files = s.files[0], s.files[1:]
		return nil
	}
	raw, err := s.lastEntries(*tail, 0)
	if err != nil {
		return err
	}
	last := len(s.files) - 1
	if _, err := s.files[last].Seek(s.sizes[last], io.SeekStart); err != nil {
		return fmt.Errorf("reading log: %w", err)
	}
	f.file, s.files = s.files[last], s.files[:last]
	if _, err := f.printer.Write(raw); err != nil {
		return fmt.Errorf("copying log %s: %w", f.path, err)
	}
	return nil
}

// catchUp copies all that has been written so far.
func (f *follower) catchUp(ctx context.Context) error {
	for {
		if err := drain(ctx, f.printer, f.file); err != nil {
			return err
		}
		file, err := f.openSuccessor()
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
	}
}

// openSuccessor opens the file that comes after the current one; nil when there is none yet.
func (f *follower) openSuccessor() (*os.File, error) {
	for {
		next, err := f.successor()
		if err != nil || next == "" {
			return nil, err
		}
		file, err := os.Open(next)
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotated or removed in between
		}
		if err != nil {
			return nil, fmt.Errorf("reading log: %w", err)
		}
		// A rotation in between gives a later file the name of the one that was found.
		again, err := f.successor()
		if err == nil && again == next {
			return file, nil
		}
		_ = file.Close() // nothing was read
		if err != nil {
			return nil, err
		}
	}
}

// successor finds the path of the file that comes after the current one; empty when there is
// none yet.
func (f *follower) successor() (string, error) {
	info, err := os.Stat(f.path)
	if err == nil && f.holds(info) {
		return "", nil
	}
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading log: %w", err)
	}
	paths, err := rotatedFiles(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the whole directory was removed
	}
	if err != nil {
		return "", err
	}
	if exists {
		paths = append(paths, f.path)
	}
	// The newest first: it is mostly one of those.
	for i, p := range slices.Backward(paths) {
		if info, err := os.Stat(p); err == nil && f.holds(info) {
			paths = paths[i+1:]
			break
		}
	}
	// When the current file is not among them, it was the oldest and has been removed.
	if len(paths) == 0 {
		return "", nil
	}
	return paths[0], nil
}

func (f *follower) holds(info fs.FileInfo) bool {
	own, err := f.file.Stat()
	return err == nil && os.SameFile(own, info)
}
