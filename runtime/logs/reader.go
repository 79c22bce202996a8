package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	if o.Tail > 0 {
		raw, err := s.lastEntries(o.Tail, 0)
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
