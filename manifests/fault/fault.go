// Package fault holds what a reader of manifests has to say about them: where, what, and
// what to do about it.
package fault

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Severity says whether a fault stops the run.
type Severity string

// The severities of a fault.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Fault is one thing wrong with one document of one file.
type Fault struct {
	// File is the path as the user gave it, or as found below what the user gave.
	File string `json:"file"`
	// Document counts the documents of the file from 1; 0 means the file as a whole.
	Document int `json:"document"`
	// Line counts the lines of the file from 1; 0 means that no line can be named.
	Line int `json:"line"`
	// Field is the full path of the field, for example spec.containers[0].image.
	Field string `json:"field"`
	// Message says what is wrong, in the words of Kubernetes where it has them.
	Message string `json:"message"`
	// Hint says what to do about it; often empty.
	Hint string `json:"hint,omitempty"`
	// Severity is error or warning.
	Severity Severity `json:"severity"`
}

// String returns "file:line: field: message (hint)" in one line, leaving out what is
// unknown. What a terminal would obey is escaped.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(f.Line))
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if f.Field != "" {
		b.WriteString(f.Field)
		b.WriteString(": ")
	}
	b.WriteString(f.Message)
	if f.Hint != "" {
		b.WriteString(" (")
		b.WriteString(f.Hint)
		b.WriteByte(')')
	}
	return printable(b.String())
}

func printable(s string) string {
	odd := func(r rune) bool { return !strconv.IsPrint(r) }
	if !strings.ContainsFunc(s, odd) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if odd(r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// List is an ordered list of faults. A list that is not empty is an error, one fault to
// a line.
type List []Fault

// Error returns the faults, one to a line.
func (l List) Error() string {
	lines := make([]string, len(l))
	for i, f := range l {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Permanent says that reading the same input again cannot help.
func (l List) Permanent() bool { return true }

// Sort orders the faults by file, line, document, field and message, and drops repeats.
func (l List) Sort() List {
	slices.SortStableFunc(l, func(a, b Fault) int {
		return cmp.Or(
			strings.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Document, b.Document),
			strings.Compare(a.Field, b.Field),
			strings.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(l)
}

// Of returns the faults of one severity, in the same order.
func (l List) Of(s Severity) List {
	var out List
	for _, f := range l {
		if f.Severity == s {
			out = append(out, f)
		}
	}
	return out
}

// Err returns the list as an error, or nil when it is empty.
func (l List) Err() error {
	if len(l) == 0 {
		return nil
	}
	return l
}
