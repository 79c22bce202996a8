package report

import (
	"cmp"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/runonce"
)

// GitHub writes reports as workflow commands of GitHub Actions, which shows them at the lines of the
// manifests. See https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
type GitHub struct {
	// Workspace is the directory of the repository, "" if unknown.
	Workspace string
	// Faults are the warnings of the manifests, and the errors of those that were skipped.
	Faults decode.Diagnostics
}

// Write writes the table of the report, an annotation for each pod that is not where it should be, with
// its logs in a group before it, and one for each fault.
func (g GitHub) Write(w io.Writer, r Report) error {
	var b strings.Builder
	if len(r.Results) > 0 {
		rows := r.rows()
		b.WriteString(inert(podRows(Style{}, r.columns(), rows)))
		for i := range rows {
			g.pod(&b, &rows[i])
		}
	}
	for _, fault := range slices.Concat(g.Faults, r.Faults) {
		fault.Field = cmp.Or(fault.Field, "manifest")
		g.annotate(&b, fault)
	}
	if r.Error != "" {
		g.annotate(&b, decode.Diagnostic{Severity: decode.SeverityError, Field: "runonce", Message: r.Error})
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (g GitHub) pod(b *strings.Builder, r *row) {
	if !r.problem {
		var details strings.Builder
		r.details(&details, Style{})
		b.WriteString(inert(details.String()))
		return
	}
	title := r.title(Printable(r.word))
	if len(r.more) > 0 {
		b.WriteString("::group::" + escapeData(title) + "\n")
		for _, line := range r.more {
			b.WriteString(inert(Printable(line) + "\n"))
		}
		b.WriteString("::endgroup::\n")
	}
	if r.word == string(runonce.Invalid) {
		return // it is a fault
	}
	severity := decode.SeverityError
	if r.optional {
		severity = decode.SeverityWarning
	}
	fault := decode.Diagnostic{Severity: severity, File: r.Source, Field: title, Message: cmp.Or(strings.TrimSpace(r.message), r.word)}
	if at := strings.LastIndexByte(r.Source, ':'); at >= 0 {
		if n, err := strconv.Atoi(r.Source[at+1:]); err == nil {
			fault.File, fault.Line = r.Source[:at], n
		}
	}
	g.annotate(b, fault)
}

// annotate writes an annotation, with the field as its title. What is not in a file, such as standard
// input, is named in its message.
func (g GitHub) annotate(b *strings.Builder, f decode.Diagnostic) {
	properties, message := "", f.Text()
	switch {
	case f.File == "":
	case strings.HasPrefix(f.File, "<") || strings.Contains(f.File, "://"):
		message = f.Place() + ": " + message
	default:
		properties = "file=" + escapeProperty(g.relative(f.File)) + ","
		if f.Line > 0 {
			properties += "line=" + strconv.Itoa(f.Line) + ","
		}
	}
	title := escapeProperty(Printable(f.Field))
	b.WriteString("::" + string(f.Severity) + " " + properties + "title=" + title + "::" + escapeData(PrintableLines(message)) + "\n")
}

// relative returns the path relative to the workspace, if it is inside.
func (g GitHub) relative(file string) string {
	abs, err := filepath.Abs(file)
	if g.Workspace == "" || err != nil {
		return file
	}
	rel, err := filepath.Rel(g.Workspace, abs)
	if err != nil || !filepath.IsLocal(rel) {
		return file
	}
	return rel
}

// escapeData escapes the text of a workflow command, and escapeProperty one of its properties, as
// GitHub's own toolkit does.
func escapeData(s string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(s)
}

func escapeProperty(s string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(s))
}
