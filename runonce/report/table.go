package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/runonce/runonce/runonce"
)

// Style is how tables look.
type Style struct {
	Wide  bool // more columns, whole messages, and the last log lines of failed containers
	Color bool // outcomes are colored with terminal escape sequences
}

// maxReason is the width of the last column of a table that is not wide, in characters.
const maxReason = 90

// Table writes one row for each pod. The wide style adds the last log lines of failed
// containers.
func (r Report) Table(w io.Writer, s Style) error {
	t := podTable(s, "NAMESPACE", "POD", "OUTCOME", "READY", "RESTARTS", "ATTEMPTS", "TIME", "IP")
	for i := range r.Results {
		t.add(r.Results[i].cells(s)...)
	}
	text := t.text()
	if s.Wide {
		text += r.tails()
	}
	_, err := io.WriteString(w, text)
	return err
}

func (r *Result) cells(s Style) []string {
	elapsed := ""
	if r.ElapsedSeconds > 0 || r.Attempts > 0 {
		elapsed = Elapsed(time.Duration(r.ElapsedSeconds * float64(time.Second)))
	}
	message := r.Message
	if r.RemoveError != "" {
		message = strings.TrimPrefix(message+"; not removed: "+r.RemoveError, "; ")
	}
	return slices.Concat([]string{
		r.Namespace, r.Name, string(r.Outcome), fmt.Sprintf("%d/%d", countReady(r.Status), r.total),
		strconv.Itoa(r.Restarts), strconv.Itoa(r.Attempts), elapsed, strings.Join(r.PodIPs, ","),
	}, reasonCells(s, r.Source, r.Reason, message))
}

// tails returns the last log lines of failed containers.
func (r Report) tails() string {
	var b strings.Builder
	for i := range r.Results {
		res := &r.Results[i]
		for _, c := range res.Containers {
			if len(c.LogTail) == 0 {
				continue
			}
			fmt.Fprintf(&b, "\n%s/%s, container %q", res.Namespace, res.Name, c.Name)
			if c.ExitCode != nil {
				fmt.Fprintf(&b, ", exit code %d", *c.ExitCode)
			}
			fmt.Fprintf(&b, ", last lines of %s:\n", c.LogPath)
			for _, line := range c.LogTail {
				b.WriteString("    " + printable(line) + "\n")
			}
		}
	}
	return b.String()
}

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
	t := table{}
	if titles != nil {
		t.add(titles...)
	}
	for _, row := range rows {
		t.add(row...)
	}
	_, err := io.WriteString(w, t.text())
	return err
}

// table aligns columns. Cells may hold any text; an empty one becomes "-".
type table struct {
	rows    [][]string
	colored int // the column with colors, 0 for none; the row of titles has none
}

// podTable returns a table of pods with the given columns and those of reasonCells.
func podTable(s Style, titles ...string) *table {
	t := &table{}
	if s.Color {
		t.colored = 2
	}
	if s.Wide {
		t.add(append(titles, "SOURCE", "REASON", "MESSAGE")...)
	} else {
		t.add(append(titles, "REASON")...)
	}
	return t
}

// reasonCells returns the last cells of a table of pods: a wide one has several, any other
// puts reason and message into one.
func reasonCells(s Style, source, reason, message string) []string {
	if s.Wide {
		return []string{source, reason, message}
	}
	switch {
	case reason == "":
		reason = message
	case message != "":
		reason += ": " + strings.ReplaceAll(message, reason+": ", "")
	}
	reason = printable(reason)
	if utf8.RuneCountInString(reason) > maxReason {
		reason = string([]rune(reason)[:maxReason-1]) + "…"
	}
	return []string{reason}
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) text() string {
	if len(t.rows) == 0 {
		return ""
	}
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			if row[i] = printable(cell); cell == "" {
				row[i] = "-"
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for n, row := range t.rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			if t.colored > 0 && n > 0 && i == t.colored {
				cell = colored(cell)
			}
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(pad)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// colored gives an outcome or verdict its color.
func colored(word string) string {
	color := 31 // red
	switch runonce.Outcome(word) {
	case runonce.Running, runonce.Ready, runonce.Succeeded, "Admitted":
		color = 32 // green
	case runonce.Rejected, runonce.Preempted, runonce.Canceled:
		color = 33 // yellow
	case runonce.Failed, runonce.TimedOut, runonce.Invalid:
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, word)
}

// printable replaces what would break a line or change the state of a terminal.
func printable(s string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return '�'
		}
		return r
	}, s), " ")
}
