package compose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is something in a compose file of which a pod cannot have the same.
type Problem struct {
	File    string // "" if it is about no file
	Line    int    // counted from 1; 0 means that no line is known
	Field   string // for example services.web.ports[80]
	Message string
	// Fatal means that the result would not be what the file asks for: nothing is converted.
	Fatal bool
}

// String returns "file:line: field: message" in one line.
func (p Problem) String() string {
	s := p.Message
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	switch {
	case p.Line > 0:
		s = fmt.Sprintf("%s:%d: %s", p.File, p.Line, s)
	case p.File != "":
		s = p.File + ": " + s
	}
	return strings.Join(strings.Fields(s), " ")
}

// Problems are sorted by file and line.
type Problems []Problem

// Error returns the problems, one per line.
func (l Problems) Error() string {
	lines := make([]string, len(l))
	for i, p := range l {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Fatal returns those that prevent the conversion.
func (l Problems) Fatal() (found Problems) {
	for _, p := range l {
		if p.Fatal {
			found = append(found, p)
		}
	}
	return found
}

// sorted returns the problems in the order of the files, each once.
func (l Problems) sorted() Problems {
	slices.SortStableFunc(l, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(l)
}
