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
type Sinks struct{ Stdout, Stderr io.Writer }

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
	raw     []byte // of an incomplete entry
	streams map[string]*stream
}

// stream is one of the container's outputs.
type stream struct {
	to   io.Writer
	held []byte // what of the current line has not been printed
	open bool   // the current line has begun
	skip bool   // the current line is not printed
}

func newPrinter(to Sinks, o Options) *printer {
	return &printer{o: o, streams: map[string]*stream{Stdout: {to: to.Stdout}, Stderr: {to: to.Stderr}}}
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
	if s.to == nil {
		return nil
	}
	if !s.open {
		s.open = true
		s.skip = err == nil && e.Time.Before(p.o.Since)
		if p.o.Timestamps && err == nil {
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
	return s.print()
}

// print writes what is held.
func (s *stream) print() error {
	if len(s.held) == 0 {
		return nil
	}
	_, err := s.to.Write(s.held)
	s.held = s.held[:0]
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
		if err := s.print(); err != nil {
			return err
		}
		s.open = false
	}
	return nil
}
