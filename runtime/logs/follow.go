package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
		next, err := f.next()
		if err != nil || next == "" {
			return err
		}
		// Something may have been written between the last read and the rotation.
		if err := drain(ctx, f.printer, f.file); err != nil {
			return err
		}
		if err := f.open(next); err != nil {
			return err
		}
	}
}

// next returns the file that comes after the current one, "" when there is none yet.
func (f *follower) next() (string, error) {
	info, err := os.Stat(f.path)
	if err == nil && f.holds(info) {
		return f.nextAttempt()
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
	for i, p := range paths {
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

// nextAttempt turns to the log of the container's next instance, if there is one.
func (f *follower) nextAttempt() (string, error) {
	attempt, ok := attemptOf(f.path)
	if !ok {
		return "", nil
	}
	dir := filepath.Dir(f.path)
	last, err := LastAttempt(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for n := attempt + 1; n <= last; n++ {
		path := filepath.Join(dir, attemptName(n))
		rotated, err := rotatedFiles(path)
		if err != nil {
			return "", err
		}
		first := path
		if len(rotated) > 0 {
			first = rotated[0]
		} else if _, err := os.Stat(path); err != nil {
			continue // this one's log was removed
		}
		// The instance before has ended, and with it its last line.
		if err := f.printer.endLines(); err != nil {
			return "", err
		}
		f.path = path
		return first, nil
	}
	return "", nil
}

// open changes over to the file. One that was rotated away in between is found by the
// next look.
func (f *follower) open(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading log: %w", err)
	}
	f.close()
	f.file = file
	return nil
}
