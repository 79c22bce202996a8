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

// entry is one line of a log file.
type entry struct {
	Time    time.Time
	Stream  string // Stdout or Stderr
	Partial bool   // the line continues in its stream's next entry
	Text    []byte // without the end of the line; it shares memory with what was parsed
}

var errEntry = errors.New("not of the form TIME STREAM TAG TEXT")

// parseEntry parses a line of a log file, with or without the newline at its end: a time in
// RFC 3339, the stream, tags separated by colons of which the first is P (partial) or F
// (full), and the text, separated by one space each (k8s.io/cri-client/pkg/logs parseCRILog).
func parseEntry(line []byte) (entry, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	stamp, rest, _ := bytes.Cut(line, []byte{' '})
	stream, rest, _ := bytes.Cut(rest, []byte{' '})
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	tag, _, _ := bytes.Cut(tags, []byte{':'})
	e := entry{Partial: string(tag) == "P", Text: text}
	ok = ok && (e.Partial || string(tag) == "F")
	switch string(stream) {
	case Stdout:
		e.Stream = Stdout
	case Stderr:
		e.Stream = Stderr
	default:
		ok = false
	}
	var err error
	if e.Time, err = time.Parse(time.RFC3339Nano, string(stamp)); err == nil && !ok {
		err = errEntry
	}
	if err != nil {
		return entry{}, fmt.Errorf("parsing log entry %.40q: %w", line, err)
	}
	return e, nil
}
