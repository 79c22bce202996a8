package report

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/runonce/runonce/manifests/decode"
)

// restInLog ends a summary that would be too long.
const restInLog = "The rest is in the log.\n"

// Summary writes the report as a summary of a step for GitHub, in its Markdown and at most limit bytes: the table, and below
// it, folded, what is known of each pod that is not where it should be. faults are those of manifests that did not keep others from
// being run.
func (r Report) Summary(w io.Writer, faults decode.Diagnostics, limit int) error {
	text := ""
	for _, part := range r.summary(faults) {
		if len(text)+len(part)+len(restInLog) > limit {
			text += restInLog
			break
		}
		text += part
	}
	if len(text) > limit {
		return nil
	}
	_, err := io.WriteString(w, text)
	return err
}

func (r Report) summary(faults decode.Diagnostics) []string {
	parts := []string{"### " + r.headline() + "\n\n"}
	if len(r.Results) > 0 {
		rows := r.rows()
		parts = append(parts, block(podRows(Style{}, r.columns(), rows)))
		for i := range rows {
			if rows[i].problem {
				parts = append(parts, rows[i].folded())
			}
		}
	}
	for _, fault := range slices.Concat(faults, r.Faults) {
		parts = append(parts, block(fault.String()))
	}
	if r.Error != "" {
		parts = append(parts, block(r.Error))
	}
	return parts
}

// headline says how the run ended.
func (r Report) headline() string {
	good := 0
	for i := range r.Results {
		if !r.Results[i].problem() {
			good++
		}
	}
	took := Elapsed(time.Duration(r.ElapsedSeconds * float64(time.Second)))
	return fmt.Sprintf("runonce: exit code %d after %s, %d of %d pods without a problem", r.ExitCode, took, good, len(r.Results))
}

// folded returns a part that a reader unfolds, with all that is known of a pod.
func (r *row) folded() string {
	lines := append([]string{strings.TrimSpace(r.message)}, r.more...)
	return "<details><summary>" + html.EscapeString(r.title(Printable(r.word))) + "</summary>\n\n" +
		block(strings.TrimSpace(strings.Join(lines, "\n"))) + "</details>\n\n"
}

// block returns a text as it is: nothing in it is Markdown or HTML.
func block(text string) string {
	return "<pre>\n" + html.EscapeString(PrintableLines(strings.TrimSuffix(text, "\n"))) + "\n</pre>\n\n"
}
