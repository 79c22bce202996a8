package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/runonce/runonce/runonce"
)

// Style is how tables look.
type Style struct {
	Wide  bool // all columns, and the whole message of each pod in its row
	Color bool // outcomes are colored with terminal escape sequences
}

// maxWidth is the width of a terminal. A table that is not wide stays within it if it can.
const maxWidth = 80

// gap separates columns.
const gap = "  "

// Elapsed formats a duration for people: 0.35s, 12.3s, 4m5s.
func Elapsed(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Rows writes a table with the given titles, which may be nil.
func Rows(w io.Writer, titles []string, rows [][]string) error {
	t := table{columns: columns(titles...), rows: rows}
	_, err := io.WriteString(w, t.text())
	return err
}

// column is one column of a table.
type column struct {
	title string
	// optional leaves the column out if every cell is empty or has a usual value.
	optional bool
	usual    []string
	// expendable leaves the column out if the table would be too wide.
	expendable bool
	wide       bool // is in the wide style only
	colored    bool // by outcome
}

// columns returns columns that are always shown.
func columns(titles ...string) []column {
	list := make([]column, 0, len(titles))
	for _, title := range titles {
		list = append(list, column{title: title})
	}
	return list
}

// namespaceColumn is left out if all pods are in the default namespace.
func namespaceColumn() column {
	return column{title: "NAMESPACE", optional: true, usual: []string{"default"}}
}

// table aligns columns. Cells may hold any text; an empty one becomes "-".
type table struct {
	columns []column // none for a table without titles
	rows    [][]string
	color   bool
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// trim leaves out the columns that the table can do without.
func (t *table) trim() {
	t.removeIf(func(i int) bool { return t.columns[i].wide || t.columns[i].optional && t.saysNothing(i) })
	last := len(t.columns) - 1
	spare := 0 // a last column without a word is left out in the end
	if t.saysNothing(last) {
		spare = len(gap) + t.widths()[last]
	}
	t.removeIf(func(i int) bool { return t.columns[i].expendable && t.width()-spare > maxWidth })
}

// saysNothing tells whether every cell of the column is empty or usual.
func (t *table) saysNothing(i int) bool {
	return !slices.ContainsFunc(t.rows, func(row []string) bool { return row[i] != "" && !slices.Contains(t.columns[i].usual, row[i]) })
}

// removeIf removes columns, from the last to the first.
func (t *table) removeIf(unwanted func(i int) bool) {
	for i := len(t.columns) - 1; i >= 0; i-- {
		if !unwanted(i) {
			continue
		}
		t.columns = slices.Delete(t.columns, i, i+1)
		for n := range t.rows {
			t.rows[n] = slices.Delete(t.rows[n], i, i+1)
		}
	}
}

// width is the length of the longest line, in characters.
func (t *table) width() int {
	total := -len(gap)
	for _, w := range t.widths() {
		total += w + len(gap)
	}
	return total
}

// widths returns the width of each column, in characters.
func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = len(c.title)
	}
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(shown(cell)))
		}
	}
	return widths
}

// shown is the text of a cell.
func shown(cell string) string { return cmp.Or(Printable(cell), "-") }

func (t *table) text() string {
	var b strings.Builder
	widths := t.widths()
	line := func(cells []string, color bool) {
		for i, cell := range cells {
			cell = shown(cell)
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + gap
			if color && t.columns[i].colored {
				cell = colored(cell)
			}
			b.WriteString(cell)
			if i < len(cells)-1 {
				b.WriteString(pad)
			}
		}
		b.WriteByte('\n')
	}
	if len(t.columns) > 0 {
		titles := make([]string, 0, len(t.columns))
		for _, c := range t.columns {
			titles = append(titles, c.title)
		}
		line(titles, false)
	}
	for _, row := range t.rows {
		line(row, t.color)
	}
	return b.String()
}

// colored gives an outcome or verdict its color: red, yellow or green.
func colored(word string) string {
	return byOutcome(runonce.Outcome(word), "\x1b[31m", "\x1b[33m", "\x1b[32m") + word + "\x1b[0m"
}

// byOutcome returns the color for a pod that failed, for one that was refused or given up, or for
// one that reached its goal.
func byOutcome(outcome runonce.Outcome, bad, refused, good string) string {
	switch outcome {
	case runonce.Running, runonce.Ready, runonce.Succeeded, "Admitted":
		return good
	case runonce.Rejected, runonce.Preempted, runonce.Canceled, runonce.Removed:
		return refused
	case runonce.Failed, runonce.TimedOut, runonce.Invalid:
	}
	return bad
}

// Printable replaces what would break a line or change the state of a terminal.
func Printable(s string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, s), " ")
}

// PrintableLines is Printable for each line of a text.
func PrintableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
