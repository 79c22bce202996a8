package ocispec

import (
	"errors"
	"fmt"
	"strings"
)

const blanks = " \t"

// envFileValue returns the value of the variable in the text of an environment file, and
// false when it has none. The format is the kubelet's (pkg/kubelet/util/env): NAME='value'
// on a line, where the value may span several lines and is used literally; empty lines and
// comments are skipped. As in a shell, NAME= followed by a blank is empty. Any other line
// before the variable is an error.
func envFileValue(text, name string) (string, bool, error) {
	r := envFileReader{rest: text}
	for r.next() {
		got, value, err := r.assignment()
		if err != nil {
			return "", false, fmt.Errorf("line %d: %w", r.line, err)
		}
		if got == name && got != "" {
			return value, value != "", nil
		}
	}
	return "", false, nil
}

// envFileReader reads a text line by line.
type envFileReader struct {
	rest    string
	current string
	line    int // of current, from 1
}

// next reads the next line and reports whether there was one.
func (r *envFileReader) next() bool {
	if r.rest == "" {
		return false
	}
	r.current, r.rest, _ = strings.Cut(r.rest, "\n")
	r.current = strings.TrimSuffix(r.current, "\r")
	r.line++
	return true
}

// assignment reads the variable that begins on the current line, and its value. The name is
// empty for a line without a variable.
func (r *envFileReader) assignment() (name, value string, err error) {
	line := strings.TrimLeft(r.current, blanks)
	if line == "" || line[0] == '#' {
		return "", "", nil
	}
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return "", "", errors.New("missing '='")
	case strings.Trim(name, blanks) == "":
		return "", "", errors.New("empty variable name")
	case strings.TrimRight(name, blanks) != name:
		return "", "", errors.New("whitespace before '=' is not allowed")
	case strings.TrimLeft(value, blanks) != value:
		return name, "", nil
	}
	value, ok = strings.CutPrefix(value, "'")
	if !ok {
		return "", "", errors.New("value must be enclosed in single quotes")
	}
	value, err = r.quoted(value)
	return name, value, err
}

// quoted reads on to the closing quote of a value that begins with head.
func (r *envFileReader) quoted(head string) (string, error) {
	var value strings.Builder
	for {
		before, after, closed := strings.Cut(head, "'")
		value.WriteString(before)
		if closed {
			after = strings.TrimLeft(after, blanks)
			if after != "" && after[0] != '#' {
				return "", errors.New("unexpected content after the closing quote")
			}
			return value.String(), nil
		}
		value.WriteByte('\n')
		if !r.next() {
			return "", errors.New("unclosed single quote")
		}
		head = r.current
	}
}
