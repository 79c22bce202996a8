package logs

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
)

// lost is what a Writer could not write.
type lost struct {
	torn  []byte // the rest of an entry that was written in part
	bytes int64  // of output, after that entry
	why   error
}

// lose notes that only the first n bytes of the entries were written.
func (l *lost) lose(entries []byte, n int, why error) {
	if n > 0 && entries[n-1] != '\n' {
		end := n + bytes.IndexByte(entries[n:], '\n') + 1
		l.torn = bytes.Clone(entries[n:end])
		n = end
	}
	l.bytes += outputSize(entries[n:])
	l.why = why
}

// message says what was lost.
func (l *lost) message() []byte {
	why := l.why
	var errno syscall.Errno
	if errors.As(why, &errno) {
		why = errno
	}
	return fmt.Appendf(nil, "runonce: %d bytes of output were lost: %v", l.bytes, why)
}

// outputSize returns how many bytes of output the entries hold.
func outputSize(entries []byte) (size int64) {
	for e := range bytes.Lines(entries) {
		f := bytes.SplitN(e, []byte{' '}, 4) // time, stream, tag, line
		size += int64(len(f[3]))
		if f[2][0] == 'P' {
			size-- // the newline is not the container's
		}
	}
	return size
}

// noteLoss completes an entry that was written in part, and then says in the log what was lost
// since.
func (w *Writer) noteLoss() error {
	if len(w.lost.torn) > 0 {
		n, err := w.add(w.lost.torn)
		w.lost.torn = w.lost.torn[n:]
		if err != nil {
			return err
		}
	}
	if w.lost.bytes == 0 {
		return nil
	}
	e := encoder{stream: Stderr, now: w.now}
	e.entry('F', w.lost.message())
	n, err := w.add(e.out)
	if n > 0 {
		w.lost = lost{torn: bytes.Clone(e.out[n:])}
	}
	return err
}
