package ocispec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const blanks = " \t"

// envFileValue returns the value of the variable in the text of an environment file, and
// false when it has none. The format is the kubelet's (pkg/kubelet/util/env): NAME='value'
// on a line, where the value may span several lines and is used literally; empty lines and
// comments are skipped. As in a shell, NAME= followed by a blank is empty. Any other line
// before the variable is an error.
func envFileValue(text, name string) (string, bool, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	for i := 0; i < len(lines); i++ {
		got, value, extra, err := assignment(lines[i:])
		i += extra
		if err != nil {
			return "", false, fmt.Errorf("line %d: %w", i+1, err)
		}
		if got == name && got != "" {
			return value, value != "", nil
		}
	}
	return "", false, nil
}

// assignment parses the variable on the first line, and returns how many more lines its value
// spans. The name is empty for a line without a variable.
func assignment(lines []string) (name, value string, extra int, err error) {
	line := strings.TrimLeft(lines[0], blanks)
	if line == "" || line[0] == '#' {
		return "", "", 0, nil
	}
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return "", "", 0, errors.New("missing '='")
	case strings.Trim(name, blanks) == "":
		return "", "", 0, errors.New("empty variable name")
	case strings.TrimRight(name, blanks) != name:
		return "", "", 0, errors.New("whitespace before '=' is not allowed")
	case strings.TrimLeft(value, blanks) != value:
		return name, "", 0, nil
	}
	value, ok = strings.CutPrefix(value, "'")
	if !ok {
		return "", "", 0, errors.New("value must be enclosed in single quotes")
	}
	if !strings.Contains(value, "'") {
		extra = 1 + slices.IndexFunc(lines[1:], func(l string) bool { return strings.Contains(l, "'") })
		if extra == 0 {
			return "", "", len(lines) - 1, errors.New("unclosed single quote")
		}
		value += "\n" + strings.Join(lines[1:extra+1], "\n")
	}
	value, after, _ := strings.Cut(value, "'")
	if after = strings.TrimLeft(after, blanks); after != "" && after[0] != '#' {
		return "", "", extra, errors.New("unexpected content after the closing quote")
	}
	return name, value, extra, nil
}
