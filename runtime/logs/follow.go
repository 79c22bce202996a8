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
// rotations and into the logs of later instances. When ended is closed, nothing more is
// written: Follow returns nil after it has copied the rest. It returns the context's cause when
// ctx is done. The error wraps fs.ErrNotExist when there is no log to begin with.
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

// follower is a position in the logs of a container.
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

// begin starts at the beginning of the log, or copies the last lines and starts after them.
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
			// The last line of an instance ends with it.
			f.path = next.log
			if err := f.printer.endLines(); err != nil {
				return err
			}
		}
	}
}

// logFile is a file of a container's logs.
type logFile struct {
	path string
	log  string // the current log of the instance that wrote it
}

// openSuccessor opens the file that comes after the current one; nil when there is none yet.
func (f *follower) openSuccessor() (logFile, *os.File, error) {
	for {
		next, err := f.successor()
		if err != nil || next.path == "" {
			return logFile{}, nil, err
		}
		file, err := os.Open(next.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // rotated or removed in between
		}
		if err != nil {
			return logFile{}, nil, fmt.Errorf("reading log: %w", err)
		}
		// A rotation in between gives a later file the name of the one that was found.
		again, err := f.successor()
		if err == nil && again == next {
			return next, file, nil
		}
		_ = file.Close() // nothing was read
		if err != nil {
			return logFile{}, nil, err
		}
	}
}

// successor finds the file that comes after the current one; none when there is none yet.
func (f *follower) successor() (logFile, error) {
	info, err := os.Stat(f.path)
	if err == nil && f.holds(info) {
		return f.nextAttempt()
	}
	exists := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return logFile{}, fmt.Errorf("reading log: %w", err)
	}
	paths, err := rotatedFiles(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return logFile{}, nil // the whole directory was removed
	}
	if err != nil {
		return logFile{}, err
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
		return logFile{}, nil
	}
	return logFile{paths[0], f.path}, nil
}

func (f *follower) holds(info fs.FileInfo) bool {
	own, err := f.file.Stat()
	return err == nil && os.SameFile(own, info)
}

// nextAttempt finds the first file of the container's next instance, if there is one.
func (f *follower) nextAttempt() (logFile, error) {
	attempt, ok := attemptOf(f.path)
	if !ok {
		return logFile{}, nil
	}
	dir := filepath.Dir(f.path)
	last, err := LastAttempt(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return logFile{}, err
	}
	for n := attempt + 1; n <= last; n++ {
		path := filepath.Join(dir, attemptName(n))
		rotated, err := rotatedFiles(path)
		if err != nil {
			return logFile{}, err
		}
		if len(rotated) > 0 {
			return logFile{rotated[0], path}, nil
		}
		if _, err := os.Stat(path); err == nil {
			return logFile{path, path}, nil
		}
		// This one's log was removed.
	}
	return logFile{}, nil
}
