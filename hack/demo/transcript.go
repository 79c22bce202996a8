package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/runonce/runonce/internal/testing/doctext"
)

// transcript prints to standard output, and keeps what it has printed.
type transcript struct{ text strings.Builder }

func (t *transcript) printf(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	fmt.Print(s)
	t.text.WriteString(s)
}

// compare returns an error when the document does not show this output of the demo.
func compare(document, output string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return fmt.Errorf("comparing the output: %w", err)
	}
	_, block, ok := strings.Cut(string(text), "```console\n")
	block, _, ended := strings.Cut(block, "# The demo has passed.\n```")
	if !ok || !ended {
		return fmt.Errorf("comparing the output: %s does not show the output of the demo", document)
	}
	shown, printed := strings.Split(block, "\n"), strings.Split(output, "\n")
	for i := range max(len(shown), len(printed)) {
		a, b := line(shown, i), line(printed, i)
		if normalize(a) != normalize(b) {
			return fmt.Errorf("%s shows another output of the demo: it has %q instead of %q", document, a, b)
		}
	}
	return nil
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

var digits = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f]*`)

// normalize replaces what differs between machines and runs: times, addresses, widths of columns, numbers.
func normalize(s string) string {
	return digits.ReplaceAllString(doctext.Normalize(s), "0")
}
