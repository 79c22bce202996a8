package progress

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// barWidth is the width of a bar, in columns, and minBarWidth that of the shortest one.
	barWidth    = 30
	minBarWidth = 4
	// defaultWidth is the width of a terminal that does not tell it.
	defaultWidth = 80
)

// screen is standard error: lines, and rows below them while some are shown.
type screen struct {
	out io.Writer

	mu     sync.Mutex
	rows   []row
	outbox *outbox // if it is set, what is written goes through it
}

// row is one line below the others. With a total it has a bar.
type row struct {
	title       string
	done, total int64
	numbers     string
}

// Write writes lines, above the rows.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(p), s.replace(string(p), s.rows)
}

// hasBars says whether rows are shown.
func (s *screen) hasBars() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows) > 0
}

// show replaces the rows.
func (s *screen) show(rows []row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.replace("", rows) // if the terminal is gone, there is nowhere to report it
}

// clear removes the rows.
func (s *screen) clear() { s.show(nil) }

// replace erases the rows and writes the lines and other rows, at once so that nothing flickers. The
// caller holds the lock.
func (s *screen) replace(lines string, rows []row) error {
	var b strings.Builder
	if n := len(s.rows); n > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", n)
	}
	b.WriteString(lines)
	width := s.width()
	for _, r := range rows {
		b.WriteString(r.text(width) + "\n")
	}
	s.rows = slices.Clone(rows)
	out := s.out
	if s.outbox != nil {
		out = s.outbox
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// width is how many columns a row may have.
func (s *screen) width() int {
	if f, ok := s.out.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return defaultWidth
}

// text is the row within the width: a longer one would take two lines.
func (r row) text(width int) string {
	text := r.title
	if left := width - columns(r.title) - columns(r.numbers) - 2; r.total > 0 && left >= minBarWidth {
		inner := min(barWidth, left) - 2
		done := int(math.Round(float64(inner) * float64(min(r.done, r.total)) / float64(r.total)))
		bar := strings.Repeat("=", done)
		if done > 0 && done < inner {
			bar = bar[1:] + ">"
		}
		text += " [" + bar + strings.Repeat("-", inner-done) + "]"
	}
	if r.numbers != "" {
		text += " " + r.numbers
	}
	return cut(text, width, columnsOf)
}

// columns is how many columns a text takes at most: characters of some scripts take two.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
	if r >= utf8.RuneSelf {
		return 2
	}
	return 1
}

// belowBars is a writer for the same terminal, from which the rows are removed first.
type belowBars struct {
	io.Writer
	screen *screen
}

func (w belowBars) Write(p []byte) (int, error) {
	w.screen.clear()
	w.screen.flush()
	return w.Writer.Write(p)
}
