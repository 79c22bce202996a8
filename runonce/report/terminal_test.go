package report

import (
	"strings"
	"testing"
)

// TestTerminalText: colors pass, and nothing else that controls a terminal, however the text is cut.
func TestTerminalText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want, plain string }{
		{"plain", "größer\t✓\r\n", "größer\t✓\r\n", ""},
		{"colors", "\x1b[1;31mred\x1b[0m \x1b[38:5:1mx\x1b[m\n", "\x1b[1;31mred\x1b[0m \x1b[38:5:1mx\x1b[m\n", "red x\n"},
		{"title", "\x1b]0;owned\a\n", "\ufffd]0;owned\ufffd\n", ""},
		{"cursor", "a\x1b[2A\x1b[Kb\n", "a\ufffd[2A\ufffd[Kb\n", ""},
		{"question", "\x1b[6n\x1b[c\n", "\ufffd[6n\ufffd[c\n", ""},
		{"8-bit controls", "\u009b2J\x9b2J\n", "\ufffd2J\ufffd2J\n", ""},
		{"others", "\b\x7f\x00\n", "\ufffd\ufffd\ufffd\n", ""},
		{"escape at the end of a line", "a\x1b\n", "a\ufffd\n", ""},
		{"endless", "\x1b[" + strings.Repeat("1;", 40) + "m\n", "\ufffd[" + strings.Repeat("1;", 40) + "m\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(c.in); size++ {
				var b, plain strings.Builder
				colored, bare := TerminalText(&b, true), TerminalText(&plain, false)
				for in := c.in; in != ""; {
					n := min(size, len(in))
					for _, w := range []interface{ Write([]byte) (int, error) }{colored, bare} {
						if got, err := w.Write([]byte(in[:n])); got != n || err != nil {
							t.Fatal(got, err)
						}
					}
					in = in[n:]
				}
				if b.String() != c.want {
					t.Errorf("in pieces of %d: %q, want %q", size, b.String(), c.want)
				}
				if c.plain != "" && plain.String() != c.plain {
					t.Errorf("without colors: %q, want %q", plain.String(), c.plain)
				}
			}
		})
	}
}
