// Package doctext compares what commands print with what a document shows.
package doctext

import (
	"regexp"
	"strings"
)

var (
	duration = regexp.MustCompile(`\b([0-9.]+[dhms])+\b`)
	uid      = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`)
	address  = regexp.MustCompile(`\b[0-9a-f]*[.:][0-9a-f.:]*[0-9a-f](,[0-9a-f.:]+)*(\s|$)`)
)

// Normalize replaces what differs from run to run in a line: times, UIDs, addresses, widths of columns.
func Normalize(line string) string {
	line = duration.ReplaceAllString(uid.ReplaceAllString(line, "UID"), "0s")
	line = address.ReplaceAllString(line, "ADDRESS ")
	return strings.Join(strings.Fields(line), " ")
}
