package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Severity says whether a problem prevents the run.
type Severity string

// The severities of a Diagnostic.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Diagnostic is one thing wrong with one document of one file.
type Diagnostic struct {
	// File is the path as the user gave it, or a path below that.
	File string `json:"file"`
	// Document counts the documents of the file from 1; 0 means the file as a whole.
	Document int `json:"document"`
	// Line counts the lines of the file from 1; 0 means that no line is known.
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

// String returns "file:line: field: message (hint)" in one line, without the parts that are
// empty. Control characters are escaped.
func (d Diagnostic) String() string {
	s := d.Text()
	if d.Field != "" {
		s = d.Field + ": " + s
	}
	if place := d.Place(); place != "" {
		s = place + ": " + s
	}
	return printable(s)
}

// Text returns the message with the hint.
func (d Diagnostic) Text() string {
	if d.Hint == "" {
		return d.Message
	}
	return d.Message + " (" + d.Hint + ")"
}

// Place returns FILE:LINE, without the line if none is known.
func (d Diagnostic) Place() string {
	if d.Line == 0 {
		return d.File
	}
	return fmt.Sprintf("%s:%d", d.File, d.Line)
}

func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Diagnostics is an ordered list of problems. A list that is not empty is an error, with one
// problem per line.
type Diagnostics []Diagnostic

// Error returns the problems, one per line.
func (l Diagnostics) Error() string {
	lines := make([]string, len(l))
	for i, d := range l {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// Sort orders the problems by file, line, document, field and message, and removes duplicates.
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
	for _, d := range l {
		if d.Severity == s {
			out = append(out, d)
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
