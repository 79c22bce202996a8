package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/runonce/runonce/internal/systemd"
)

const (
	// MaxLine is the longest piece of a line in one entry, in bytes; a longer line is
	// split into partial entries (containerd: max_container_log_line_size).
	MaxLine = 16 << 10
	// maxSize is the size at which a log file is rotated, in bytes (kubelet:
	// containerLogMaxSize 10Mi).
	maxSize = 10 << 20
	// maxFiles is how many files of one container are kept, with the one being written
	// (kubelet: containerLogMaxFiles 5).
	maxFiles = 5
	logMode  = 0o640
)

// Writer writes the output of one container to a file in the CRI log format and rotates
// it as the kubelet does: NAME.log becomes NAME.log.YYYYMMDD-HHMMSS (pkg/kubelet/logs).
// It is safe for concurrent use, so that both streams share it.
type Writer struct {
	path  string
	limit int64 // maxSize but in tests
	keep  int   // maxFiles but in tests
	now   func() time.Time

	journal *systemd.Conn // gets the lines as well; nil for none

	mu   sync.Mutex
	file *os.File
	size int64
	lost lost
}

// OpenWriter opens the log file at path, whose directory exists, to append to it.
func OpenWriter(path string) (*Writer, error) {
	w := &Writer{path: path, limit: maxSize, keep: maxFiles, now: time.Now}
	if err := w.open(); err != nil {
		return nil, err
	}
	return w, nil
}

// Copy reads one stream of the container, Stdout or Stderr, until its end and writes it as log
// entries. When the file cannot be written, it continues to read, so that the container never
// blocks, notes the loss in the log when that can be written again, and returns the first error at
// the end.
func (w *Writer) Copy(stream string, r io.Reader) error {
	e := encoder{stream: stream, now: w.now, send: w.journalSender(stream)}
	// A line of exactly MaxLine bytes and its end have to fit.
	in := make([]byte, MaxLine+2)
	held := 0
	var failed error
	for {
		n, err := r.Read(in[held:])
		held += n
		rest := e.encode(in[:held])
		held = copy(in, rest)
		if err != nil {
			e.end(in[:held])
			held = 0
		}
		if len(e.out) > 0 {
			if werr := w.write(e.out); failed == nil {
				failed = werr
			}
			e.out = e.out[:0]
		}
		if errors.Is(err, io.EOF) {
			return failed
		}
		if err != nil {
			return errors.Join(failed, fmt.Errorf("reading %s for log %q: %w", stream, w.path, err))
		}
	}
}

// Close closes the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	failed := w.noteLoss()
	if w.journal != nil {
		failed = errors.Join(failed, w.journal.Close())
		w.journal = nil
	}
	if w.file == nil {
		return failed
	}
	err := w.file.Close()
	w.file = nil
	return errors.Join(failed, err)
}

// encoder turns a stream's bytes into log entries.
type encoder struct {
	stream string
	now    func() time.Time
	send   func(tag byte, line []byte) // gets them as well, unless it is nil
	out    []byte
}

// encode appends an entry for each whole line of in, and for each piece of MaxLine bytes
// of a longer one, and returns what is left.
func (e *encoder) encode(in []byte) []byte {
	for {
		i := bytes.IndexByte(in, '\n')
		if i < 0 {
			break
		}
		line := in[:i]
		in = in[i+1:]
		// containerd drops the carriage return too (internal/cri/io.readLine).
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) > MaxLine {
			e.entry('P', line[:MaxLine])
			line = line[MaxLine:]
		}
		e.entry('F', line)
	}
	if len(in) >= MaxLine+2 {
		e.entry('P', in[:MaxLine])
		in = in[MaxLine:]
	}
	return in
}

// end appends what is left at the end of the stream: an incomplete line is partial
// (internal/cri/io.redirectLogs).
func (e *encoder) end(rest []byte) {
	for len(rest) > 0 {
		n := min(len(rest), MaxLine)
		e.entry('P', rest[:n])
		rest = rest[n:]
	}
}

func (e *encoder) entry(tag byte, line []byte) {
	e.out = e.now().UTC().AppendFormat(e.out, time.RFC3339Nano)
	e.out = append(e.out, ' ')
	e.out = append(e.out, e.stream...)
	e.out = append(e.out, ' ', tag, ' ')
	e.out = append(e.out, line...)
	e.out = append(e.out, '\n')
	if e.send != nil {
		e.send(tag, line)
	}
}

// write appends whole entries. What cannot be written is lost, and the log says so when it can be
// written again.
func (w *Writer) write(entries []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	err := w.noteLoss()
	if err == nil {
		n, err = w.add(entries)
	}
	if err != nil {
		w.lost.lose(entries, n, err)
	}
	return err
}

// add appends entries, rotating first when they would not fit, or the rest of an entry.
func (w *Writer) add(entries []byte) (int, error) {
	if w.size > 0 && w.size+int64(len(entries)) > w.limit && len(w.lost.torn) == 0 {
		if err := w.rotate(); err != nil {
			return 0, err
		}
	}
	if w.file == nil {
		if err := w.open(); err != nil {
			return 0, err
		}
	}
	n, err := w.file.Write(entries)
	w.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("writing log: %w", err)
	}
	return n, nil
}

func (w *Writer) open() error {
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, logMode)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("reading the size of log: %w", err), f.Close())
	}
	w.file, w.size = f, info.Size()
	return nil
}

// rotate renames the file, removes the oldest files and opens a new one.
func (w *Writer) rotate() error {
	if err := os.Rename(w.path, w.rotatedName()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotating log: %w", err)
	}
	if file := w.file; file != nil {
		w.file = nil // also after an error: it cannot be closed again
		if err := file.Close(); err != nil {
			return fmt.Errorf("closing rotated log %q: %w", w.path, err)
		}
	}
	old, err := rotatedFiles(w.path)
	if err != nil {
		return err
	}
	for len(old) > w.keep-1 {
		if err := os.Remove(old[0]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing old log: %w", err)
		}
		old = old[1:]
	}
	return w.open()
}

// rotatedName returns a new name that sorts after those of all rotated files.
func (w *Writer) rotatedName() string {
	t := w.now().UTC()
	if old, err := rotatedFiles(w.path); err == nil && len(old) > 0 {
		if at, err := time.Parse("."+rotatedStamp, filepath.Ext(old[len(old)-1])); err == nil && !t.Truncate(time.Second).After(at) {
			t = at.Add(time.Second)
		}
	}
	return w.path + "." + t.Format(rotatedStamp)
}
