package logs

import (
	"bytes"
	"math"
	"strings"
)

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
		e, err := ParseEntry(raw[start:end])
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
