package logs

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// The streams of a container.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Entry is one line of a log file.
type Entry struct {
	Time    time.Time
	Stream  string // Stdout or Stderr
	Partial bool   // the container's line goes on in its stream's next entry
	Text    []byte // without the line's end; it shares memory with what was parsed
}

var errEntry = errors.New("not of the form TIME STREAM TAG TEXT")

// ParseEntry reads a line of a log file, with or without the newline at its end: a time in
// RFC 3339, the stream, tags separated by colons of which the first is P (partial) or F
// (full), and the text, each after one space (k8s.io/cri-client/pkg/logs parseCRILog).
func ParseEntry(line []byte) (Entry, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return Entry{}, fmt.Errorf("parsing log entry %.40q: %w", line, errEntry)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Entry{}, fmt.Errorf("parsing log entry %.40q: %w", line, err)
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	e := Entry{Time: at}
	switch {
	case ok && string(stream) == Stdout:
		e.Stream = Stdout
	case ok && string(stream) == Stderr:
		e.Stream = Stderr
	default:
		return Entry{}, fmt.Errorf("parsing log entry %.40q: %w", line, errEntry)
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	tag, _, _ := bytes.Cut(tags, []byte{':'})
	switch {
	case ok && string(tag) == "P":
		e.Partial = true
	case ok && string(tag) == "F":
	default:
		return Entry{}, fmt.Errorf("parsing log entry %.40q: %w", line, errEntry)
	}
	e.Text = text
	return e, nil
}
