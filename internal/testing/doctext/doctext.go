// Package doctext compares what commands print with what a document shows.
package doctext

import (
	"regexp"
	"strings"
)

var (
	duration = regexp.MustCompile(`\b([0-9.]+[dhms])+\b`)
	address  = regexp.MustCompile(`\b[0-9a-f]*[.:][0-9a-f.:]*[0-9a-f](,[0-9a-f.:]+)*(\s|$)`)
)

// Normalize replaces what differs from run to run in a line: times, addresses, widths of columns.
func Normalize(line string) string {
	line = address.ReplaceAllString(duration.ReplaceAllString(line, "0s"), "ADDRESS ")
	return strings.Join(strings.Fields(line), " ")
}
