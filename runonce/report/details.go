package report

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// row is one pod in a table of pods.
type row struct {
	PodID
	cells    []string // all before the reason
	word     string   // outcome or verdict
	problem  bool     // the pod is not where it should be: the details have its message
	optional bool     // the exit code does not depend on the pod
	reason   string   // one word or a few
	message  string   // may be long, and have several lines
	more     []string // further lines of the details
	// note is what a short row says in place of a message that is not a problem's, and hint what
	// it adds if there is room.
	note, hint string

	complete bool // the cells have the message
}

// podTable returns a table of pods and, below it, the details of some of them.
func podTable(s Style, cols []column, rows []row) string {
	var b strings.Builder
	b.WriteString(podRows(s, cols, rows))
	for i := range rows {
		rows[i].details(&b, s)
	}
	return b.String()
}

// podRows returns a table of pods. The wide style has every column, and messages in the rows. Any
// other has short rows: a message is in the details, or in the row if the pod is where it should be
// and there is room.
func podRows(s Style, cols []column, rows []row) string {
	t := &table{columns: cols, color: s.Color}
	if s.Wide {
		t.columns = append(t.columns, columns("SOURCE", "REASON", "MESSAGE")...)
		for i := range rows {
			r := &rows[i]
			t.add(append(r.cells, r.Source, join(", ", r.reason, r.weight()), r.message)...)
			r.complete = true
		}
	} else {
		t.columns = append(t.columns, column{title: "REASON"})
		for i := range rows {
			t.add(append(rows[i].cells, join(", ", rows[i].reason, rows[i].note, rows[i].weight()))...)
		}
		t.trim()
		t.addMessages(rows)
	}
	return t.text()
}

// addMessages adds messages to the reasons, in the last column, where there is room. It leaves the
// column out if it is empty.
func (t *table) addMessages(rows []row) {
	last := len(t.columns) - 1
	room := maxWidth - t.width() + t.widths()[last]
	for i := range rows {
		r := &rows[i]
		message := r.message
		if r.note != "" && !r.problem {
			message, r.complete = r.hint, true
		}
		cell := join(": ", t.rows[i][last], message)
		if !r.problem && utf8.RuneCountInString(Printable(cell)) <= room {
			t.rows[i][last], r.complete = cell, true
		}
		r.complete = r.complete || message == ""
	}
	t.removeIf(func(i int) bool { return i == last && t.saysNothing(i) })
}

// join joins the texts that are not empty.
func join(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), separator)
}

// weight marks a pod on which the exit code does not depend.
func (r *row) weight() string {
	if r.optional {
		return "optional"
	}
	return ""
}

// title is the pod with its outcome, which word says, and the reason.
func (r *row) title(word string) string {
	title := Printable(cmp.Or(strings.TrimPrefix(r.Namespace+"/"+r.Name, "/"), "-")) + ": " + word
	if r.reason != "" && r.reason != r.word {
		title += ", " + Printable(r.reason)
	}
	return title
}

// details writes what the row has no room for.
func (r *row) details(b *strings.Builder, s Style) {
	if r.complete && len(r.more) == 0 {
		return
	}
	word := Printable(r.word)
	if s.Color {
		word = colored(word)
	}
	b.WriteString("\n" + r.title(word))
	if r.Source != "" {
		b.WriteString(" (" + Printable(r.Source) + ")")
	}
	b.WriteByte('\n')
	var lines []string
	if !r.complete {
		lines = strings.Split(strings.TrimRight(r.message, "\n"), "\n")
	}
	for _, line := range slices.Concat(lines, r.more) {
		b.WriteString("  " + Printable(line) + "\n")
	}
}
