package decode

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Severity says whether a problem stops the run.
type Severity string

// The severities of a Diagnostic.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Diagnostic is one thing wrong with one document of one file.
type Diagnostic struct {
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
func (f Diagnostic) String() string {
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

// Diagnostics is an ordered list of problems. A list that is not empty is an error, one
// problem to a line.
type Diagnostics []Diagnostic

// Error returns the problems, one to a line.
func (l Diagnostics) Error() string {
	lines := make([]string, len(l))
	for i, f := range l {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Sort orders the problems by file, line, document, field and message, and drops repeats.
func (l Diagnostics) Sort() Diagnostics {
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
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

// Of returns the problems of one severity, in the same order.
func (l Diagnostics) Of(s Severity) Diagnostics {
	var out Diagnostics
	for _, f := range l {
		if f.Severity == s {
			out = append(out, f)
		}
	}
	return out
}

// Err returns the list as an error, or nil when it is empty.
func (l Diagnostics) Err() error {
	if len(l) == 0 {
		return nil
	}
	return l
}
