package logs

import (
	"bytes"
	"io"
	"time"
)

// maxHeld bounds how much of an incomplete line is held, in bytes. A longer line is printed in
// pieces.
const maxHeld = 1 << 20

// Sinks are where the container's streams are copied to. A nil one drops its stream.
type Sinks struct {
	Stdout, Stderr io.Writer
	// Lines, if it is set, gets the lines instead.
	Lines func(Line) error
}

// Line is what a container has written up to the end of a line, or up to maxHeld of a longer one.
type Line struct {
	// Time is when the container began to write it: zero for the rest of a longer line, and for what is no entry of a
	// log.
	Time   time.Time
	Stream string // Stdout or Stderr
	Text   []byte // with the end of the line, if it has one; valid until Lines returns
}

// Options are what of a log is copied.
type Options struct {
	Since      time.Time // only lines that begin at this time or later
	Tail       *int      // only so many last lines; nil means all
	Timestamps bool      // each line begins with its time and a space
}

// printer is a writer of a log file's bytes that prints the container's lines, complete ones if
// possible, so that the streams do not mix within a line.
type printer struct {
	o       Options
	to      Sinks
	raw     []byte // of an incomplete entry
	streams map[string]*stream
}

// stream is one of the container's outputs.
type stream struct {
	name string
	to   io.Writer
	time time.Time // of what is held, zero if that is not the beginning of an entry
	held []byte    // what of the current line has not been printed
	open bool      // the current line has begun
	skip bool      // the current line is not printed
}

func newPrinter(to Sinks, o Options) *printer {
	return &printer{o: o, to: to, streams: map[string]*stream{Stdout: {name: Stdout, to: to.Stdout}, Stderr: {name: Stderr, to: to.Stderr}}}
}

// Write prints the next bytes of the log.
func (p *printer) Write(data []byte) (int, error) {
	n := len(data)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		line := data[:i]
		if len(p.raw) > 0 {
			line = append(p.raw, line...)
			p.raw = line[:0]
		}
		data = data[i+1:]
		if err := p.line(line); err != nil {
			return 0, err
		}
	}
	p.raw = append(p.raw, data...)
	if len(p.raw) > maxHeld {
		raw := p.raw
		p.raw = nil
		return n, p.line(raw)
	}
	return n, nil
}

// line prints an entry. What is not an entry, for example after a power cut, is printed as it
// is: it may be what the reader is looking for.
func (p *printer) line(line []byte) error {
	e, err := parseEntry(line)
	if err != nil {
		e = entry{Stream: Stdout, Text: line}
	}
	s := p.streams[e.Stream]
	if s.to == nil && p.to.Lines == nil {
		return nil
	}
	if !s.open {
		s.open = true
		s.skip = err == nil && e.Time.Before(p.o.Since)
		if s.time = e.Time; p.o.Timestamps && err == nil {
			s.held = append(e.Time.AppendFormat(s.held, time.RFC3339Nano), ' ')
		}
	}
	if !s.skip {
		s.held = append(s.held, e.Text...)
	}
	if e.Partial && len(s.held) < maxHeld {
		return nil
	}
	if !e.Partial {
		s.open = false
		if !s.skip {
			s.held = append(s.held, '\n')
		}
	}
	return p.print(s)
}

// print prints what of a stream is held.
func (p *printer) print(s *stream) (err error) {
	if len(s.held) == 0 {
		return nil
	}
	if p.to.Lines != nil {
		err = p.to.Lines(Line{Time: s.time, Stream: s.name, Text: s.held})
	} else {
		_, err = s.to.Write(s.held)
	}
	s.held, s.time = s.held[:0], time.Time{}
	return err
}

// flush prints incomplete lines as they are. It is for the end of a log.
func (p *printer) flush() error {
	if len(p.raw) > 0 {
		raw := p.raw
		p.raw = nil
		// An entry that lacks only its newline counts; a torn one does not.
		if _, err := parseEntry(raw); err == nil {
			if err := p.line(raw); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{Stdout, Stderr} {
		s := p.streams[name]
		if err := p.print(s); err != nil {
			return err
		}
		s.open = false
	}
	return nil
}
