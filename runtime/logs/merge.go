package logs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// Source copies one of several logs: it calls line for each of its lines, until the end, an error of that, or ctx is
// done.
type Source func(ctx context.Context, line func(Line) error) error

// readAhead is how many lines of each log are read before they are merged.
const readAhead = 64

// Merge calls line with the lines of the sources, and the index of their source, in the order of their times. Of each
// source they keep their order. An error of line ends it, and is returned; those of sources are returned at the end,
// when the lines of the others have been merged.
func Merge(ctx context.Context, sources []Source, line func(source int, l Line) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heads := make([]*head, len(sources))
	for i, s := range sources {
		heads[i] = startReading(ctx, s)
	}
	errs := make([]error, 0, len(sources))
	for {
		next := -1
		for i, h := range heads {
			if h.peek() && (next < 0 || h.at.Before(heads[next].at)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		if err := line(next, heads[next].take()); err != nil {
			return err
		}
	}
	for _, h := range heads {
		errs = append(errs, h.err)
	}
	return errors.Join(errs...)
}

// head is a source of which lines are read ahead.
type head struct {
	lines <-chan Line
	err   error // valid when lines is closed
	next  *Line
	at    time.Time // that of next, or of the last line before it that has one
}

func startReading(ctx context.Context, s Source) *head {
	lines := make(chan Line, readAhead)
	h := &head{lines: lines}
	go func() {
		defer close(lines)
		h.err = s(ctx, func(l Line) error {
			l.Text = bytes.Clone(l.Text)
			select {
			case lines <- l:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	return h
}

// peek waits for the next line and says whether there is one.
func (h *head) peek() bool {
	if h.next != nil {
		return true
	}
	l, ok := <-h.lines
	if !ok {
		return false
	}
	h.next = &l
	if !l.Time.IsZero() {
		h.at = l.Time
	}
	return true
}

func (h *head) take() Line {
	l := *h.next
	h.next = nil
	return l
}

// Interleave calls line with the lines of the sources, and the index of their source, as they come, one call at a time.
// It returns when all sources have ended, with their errors, or after an error of line.
func Interleave(ctx context.Context, sources []Source, line func(source int, l Line) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		failure error // of line
	)
	errs := make([]error, len(sources))
	for i, s := range sources {
		all.Go(func() {
			errs[i] = s(ctx, func(l Line) error {
				mu.Lock()
				defer mu.Unlock()
				if failure == nil {
					if failure = line(i, l); failure != nil {
						cancel(failure)
					}
				}
				return failure
			})
		})
	}
	all.Wait()
	if failure != nil {
		return failure
	}
	return errors.Join(errs...)
}

// LineWriter returns a writer that calls line for each line of a text, which begins with its time and a space if the
// text is that of the Kubernetes API with timestamps. A line that is longer than maxHeld is cut. flush is for the end
// of the text.
func LineWriter(timestamps bool, line func(Line) error) (w io.Writer, flush func() error) {
	l := &lineWriter{timestamps: timestamps, line: line}
	return l, func() error {
		if len(l.held) == 0 {
			return nil
		}
		return l.print(l.held)
	}
}

type lineWriter struct {
	timestamps bool
	line       func(Line) error
	held       []byte
	within     bool // what is held is the rest of a line that was cut
}

// Write prints the lines that are complete.
func (w *lineWriter) Write(data []byte) (int, error) {
	rest := append(w.held, data...)
	for {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 && len(rest) > maxHeld {
			end = maxHeld
		}
		if end == 0 {
			w.held = append(w.held[:0], rest...)
			return len(data), nil
		}
		if err := w.print(rest[:end]); err != nil {
			return 0, err
		}
		rest = rest[end:]
	}
}

func (w *lineWriter) print(text []byte) error {
	l := Line{Stream: Stdout, Text: text}
	if stamp, text, ok := bytes.Cut(text, []byte{' '}); w.timestamps && !w.within && ok {
		if at, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil {
			l.Time, l.Text = at, text
		}
	}
	w.within = !bytes.HasSuffix(text, []byte{'\n'})
	return w.line(l)
}
