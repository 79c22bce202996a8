package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/runonce/runonce/runonce"
)

// Style says how tables look.
type Style struct {
	// Wide adds columns, whole messages and the last lines of failed containers.
	Wide bool
	// Color marks outcomes by terminal escape sequences.
	Color bool
}

// maxReason is how long the last column of a table that is not wide may be, in runes.
const maxReason = 90

// Table writes one row for each pod, and in the wide style the last lines that failed
// containers have written below.
func (r Report) Table(w io.Writer, s Style) error {
	t := table{color: s.Color, paint: 2}
	t.headOf(s, "NAMESPACE", "POD", "OUTCOME", "READY", "RESTARTS", "ATTEMPTS", "TIME", "IP")
	for i := range r.Results {
		t.add(r.Results[i].cells(s)...)
	}
	if err := t.write(w); err != nil {
		return err
	}
	if !s.Wide {
		return nil
	}
	return r.tails(w)
}

func (r *Result) cells(s Style) []string {
	elapsed := "-"
	if r.ElapsedSeconds > 0 || r.Attempts > 0 {
		elapsed = Elapsed(time.Duration(r.ElapsedSeconds * float64(time.Second)))
	}
	cells := []string{
		dash(r.Namespace), dash(r.Name), string(r.Outcome), r.ready(), strconv.Itoa(r.Restarts),
		strconv.Itoa(r.Attempts), elapsed, dash(strings.Join(r.PodIPs, ",")),
	}
	message := r.Message
	if r.RemoveError != "" {
		message = strings.TrimPrefix(message+"; not removed: "+r.RemoveError, "; ")
	}
	if s.Wide {
		return append(cells, dash(r.Source), dash(r.Reason), dash(message))
	}
	return append(cells, reason(r.Reason, message))
}

// reason puts reason and message into the one cell that a narrow table has for them.
func reason(reason, message string) string {
	switch {
	case reason == "":
		reason = message
	case message != "":
		reason += ": " + strings.ReplaceAll(message, reason+": ", "")
	}
	reason = plain(reason)
	if utf8.RuneCountInString(reason) > maxReason {
		reason = string([]rune(reason)[:maxReason-1]) + "…"
	}
	return dash(reason)
}

// ready returns how many of the pod's containers are ready, as "1/2".
func (r *Result) ready() string {
	n := 0
	for _, c := range r.Status.ContainerStatuses {
		if c.Ready {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, r.wanted)
}

// tails writes the last lines of failed containers.
func (r Report) tails(w io.Writer) error {
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
				b.WriteString("    " + plain(line) + "\n")
			}
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing log lines: %w", err)
	}
	return nil
}

// Elapsed writes a time the way that people read it: 0.35s, 12.3s, 4m5s.
func Elapsed(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// table lines columns up. Its cells may hold anything; what would disturb a terminal is
// taken out.
type table struct {
	rows  [][]string
	color bool
	paint int // the column that color is for
}

func (t *table) head(titles ...string) {
	if len(t.rows) == 0 {
		t.rows = append(t.rows, nil)
	}
	t.rows[0] = append(t.rows[0], titles...)
}

// headOf names the columns of a table of pods: those given, and the last ones that all have.
func (t *table) headOf(s Style, titles ...string) {
	t.head(titles...)
	if s.Wide {
		t.head("SOURCE")
	}
	t.head("REASON")
	if s.Wide {
		t.head("MESSAGE")
	}
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			row[i] = plain(cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for n, row := range t.rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			if t.color && n > 0 && i == t.paint {
				cell = painted(cell)
			}
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(pad)
			}
		}
		b.WriteByte('\n')
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing table: %w", err)
	}
	return nil
}

// painted gives an outcome or verdict its color.
func painted(word string) string {
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

// plain takes out what would break a line or change the state of a terminal.
func plain(s string) string {
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

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Rows writes plain rows below titles, of which there may be none.
func Rows(w io.Writer, titles []string, rows [][]string) error {
	t := table{}
	if len(titles) > 0 {
		t.head(titles...)
	}
	for _, row := range rows {
		t.add(row...)
	}
	if len(t.rows) == 0 {
		return nil
	}
	return t.write(w)
}
