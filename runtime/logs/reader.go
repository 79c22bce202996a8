package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
)

// Read copies the log at path, with the rotated files before it. The error wraps
// fs.ErrNotExist when there is no log.
func Read(ctx context.Context, path string, to Sinks, o Options) error {
	s, err := takeSnapshot(path)
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }() // they were only read
	p := newPrinter(to, o)
	if o.Tail != nil {
		raw, err := s.lastEntries(*o.Tail, 0)
		if err != nil {
			return err
		}
		if _, err := p.Write(raw); err != nil {
			return fmt.Errorf("copying log %s: %w", path, err)
		}
		return p.flush()
	}
	for _, f := range s.files {
		if err := drain(ctx, p, f); err != nil {
			return err
		}
	}
	return p.flush()
}

// drain copies what is left of the file.
func drain(ctx context.Context, p *printer, f *os.File) error {
	buf := make([]byte, 64<<10)
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := f.Read(buf)
		if n > 0 {
			if _, err := p.Write(buf[:n]); err != nil {
				return fmt.Errorf("copying log %s: %w", f.Name(), err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading log: %w", err)
		}
	}
}

const (
	// firstTail is how much of a log's end is searched first for its last lines, in bytes.
	firstTail = 16 << 10
	// entryOverhead is more than an entry has besides its text, in bytes.
	entryOverhead = 64
)

// Tail returns the last lines of the log at path, of both streams, without line ends: at most
// the given number, and of them the last maxBytes. It reads no more than it needs, if necessary
// of the rotated files too. The error wraps fs.ErrNotExist when there is no log.
func Tail(path string, lines, maxBytes int) ([]string, error) {
	text, err := readTail(path, lines, maxBytes)
	if err != nil || text == "" {
		return nil, err
	}
	text = lastBytes(strings.TrimSuffix(text, "\n"), maxBytes)
	all := strings.Split(strings.ToValidUTF8(text, "\uFFFD"), "\n")
	return all[max(0, len(all)-lines):], nil
}

// TailText is Tail as one text, with line ends.
func TailText(path string, lines, maxBytes int) (string, error) {
	text, err := readTail(path, lines, maxBytes)
	return lastBytes(text, maxBytes), err
}

func lastBytes(text string, n int) string { return text[max(0, len(text)-n):] }

// readTail returns the last lines, and perhaps more than maxBytes of them.
func readTail(path string, lines, maxBytes int) (string, error) {
	if lines <= 0 || maxBytes <= 0 {
		return "", nil
	}
	s, err := takeSnapshot(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.close() }()
	raw, err := s.lastEntries(lines, maxBytes)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	p := newPrinter(Sinks{Stdout: &out, Stderr: &out}, Options{})
	if _, err := p.Write(raw); err != nil {
		return "", err
	}
	err = p.flush()
	return out.String(), err
}

// lastEntries returns the bytes of the entries of the last lines, as many as maxBytes of text
// need (0: all).
func (s *snapshot) lastEntries(lines, maxBytes int) ([]byte, error) {
	enough := int64(math.MaxInt64 / 8)
	if maxBytes > 0 {
		enough = int64(maxBytes) + int64(lines+1)*entryOverhead + firstTail
	}
	for size := int64(firstTail); ; size *= 4 {
		raw, all, err := s.suffix(size)
		if err != nil {
			return nil, err
		}
		cut, ok := cutLines(raw, lines)
		// An entry of another writer may be longer than all that was searched.
		if ok || all || size >= enough && len(cut) > 0 {
			return cut, nil
		}
	}
}

// cutLines returns the entries of the last lines, and whether there is a line before them:
// without one the first line may lack its beginning.
func cutLines(raw []byte, lines int) ([]byte, bool) {
	end := len(raw)
	for found := 0; end > 0; {
		start := bytes.LastIndexByte(raw[:end-1], '\n') + 1
		e, err := parseEntry(raw[start:end])
		// The end of the log counts as a line, also when that is not complete.
		if err != nil || !e.Partial || end == len(raw) {
			found++
		}
		if found > lines {
			return raw[end:], true
		}
		end = start
	}
	return raw, false
}

// snapshot is a log with its rotated files as they were at one time.
type snapshot struct {
	files []*os.File // the oldest first
	sizes []int64
}

// takeSnapshot opens the log at path. The error wraps fs.ErrNotExist when there is none.
func takeSnapshot(path string) (_ *snapshot, err error) {
	s := &snapshot{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	// The current file first: if it is rotated meanwhile, it appears among the others, and
	// those after it are too new.
	current, err := os.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading log: %w", err)
	}
	err = s.openRotated(path, current)
	if current != nil {
		s.files = append(s.files, current)
	}
	if err != nil {
		return nil, fmt.Errorf("reading log: %w", err)
	}
	if len(s.files) == 0 {
		return nil, fmt.Errorf("reading log %s: %w", path, fs.ErrNotExist)
	}
	for _, f := range s.files {
		info, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("reading log: %w", err)
		}
		s.sizes = append(s.sizes, info.Size())
	}
	return s, nil
}

// openRotated opens the rotated files that are older than the current one, which may be nil.
func (s *snapshot) openRotated(path string, current *os.File) error {
	paths, err := rotatedFiles(path)
	if err != nil {
		return err
	}
	for _, p := range paths {
		f, err := os.Open(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the oldest is removed when a new one is made
		}
		if err != nil {
			return err
		}
		if current != nil && sameFile(f, current) {
			return f.Close()
		}
		s.files = append(s.files, f)
	}
	return nil
}

func sameFile(a, b *os.File) bool {
	infoA, errA := a.Stat()
	infoB, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// close closes the files.
func (s *snapshot) close() error {
	errs := make([]error, 0, len(s.files))
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.files = nil
	return errors.Join(errs...)
}

// suffix returns the whole entries in the last size bytes, and whether these are all.
func (s *snapshot) suffix(size int64) (raw []byte, all bool, err error) {
	var parts [][]byte
	left := size
	for i := len(s.files) - 1; i >= 0 && left > 0; i-- {
		part := make([]byte, min(left, s.sizes[i]))
		if _, err := s.files[i].ReadAt(part, s.sizes[i]-int64(len(part))); err != nil && !errors.Is(err, io.EOF) {
			return nil, false, fmt.Errorf("reading log: %w", err)
		}
		parts = append(parts, part)
		left -= int64(len(part))
	}
	slices.Reverse(parts)
	raw = bytes.Join(parts, nil)
	if left > 0 {
		return raw, true, nil
	}
	return raw[bytes.IndexByte(raw, '\n')+1:], false, nil
}
