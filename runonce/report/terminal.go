package report

import (
	"bytes"
	"io"
	"unicode"
	"unicode/utf8"
)

// maxColor limits the length of a sequence that sets colors, in bytes.
const maxColor = 64

// TerminalText returns a writer for text of unknown origin on a terminal: what would move the cursor,
// change the window or have the terminal answer is replaced. Line breaks, tabs and carriage returns
// stay, and colors if they are wanted. A character or sequence that has only begun is written with its end.
func TerminalText(w io.Writer, colors bool) io.Writer {
	return &terminalWriter{w: w, colors: colors}
}

type terminalWriter struct {
	w      io.Writer
	colors bool
	held   []byte
}

// Write writes text.
func (t *terminalWriter) Write(data []byte) (int, error) {
	in := append(t.held, data...)
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		n := 0
		if out, n = t.next(out, in); n == 0 {
			break
		}
		in = in[n:]
	}
	t.held = append(t.held[:0:0], in...)
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(data), nil
}

// next appends the first character, or color, of the text, and returns its length: 0 if it is not complete.
func (t *terminalWriter) next(out, in []byte) ([]byte, int) {
	color, begun := colorSequence(in)
	switch {
	case begun || !utf8.FullRune(in):
		return out, 0
	case color > 0 && t.colors:
		return append(out, in[:color]...), color
	case color > 0:
		return out, color
	}
	r, n := utf8.DecodeRune(in)
	if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
		r = unicode.ReplacementChar
	}
	return utf8.AppendRune(out, r), n
}

// colorSequence returns the length of the escape sequence at the beginning of the text that sets colors
// and the like, 0 if there is none, and whether the text may be the beginning of one.
func colorSequence(in []byte) (length int, begun bool) {
	start := []byte("\x1b[")
	if !bytes.HasPrefix(in, start) {
		return 0, bytes.HasPrefix(start, in)
	}
	end := bytes.IndexFunc(in[len(start):], func(r rune) bool { return (r < '0' || r > '9') && r != ';' && r != ':' })
	switch end += len(start); {
	case end < len(start):
		return 0, len(in) < maxColor
	case in[end] == 'm' && end < maxColor:
		return end + 1, false
	}
	return 0, false
}
