package report

import (
	"io"
	"strings"
)

// InJob says whether the output of the process is read by a runner of GitHub Actions, Gitea, Forgejo or
// Azure Pipelines, which obeys the commands in it.
func InJob(getenv func(string) string) bool {
	for _, variable := range []string{"GITHUB_ACTIONS", "GITEA_ACTIONS", "FORGEJO_ACTIONS", "TF_BUILD"} {
		if strings.EqualFold(getenv(variable), "true") {
			return true
		}
	}
	return false
}

// Inert returns a writer that changes what a runner would obey: no text of a container or a manifest is
// a command. Whole lines must be written at once.
func Inert(w io.Writer) io.Writer { return inertWriter{w} }

type inertWriter struct{ w io.Writer }

// Write writes lines.
func (i inertWriter) Write(data []byte) (int, error) {
	if _, err := io.WriteString(i.w, inert(string(data))); err != nil {
		return 0, err
	}
	return len(data), nil
}

// inertJSON does the same to JSON without a change of what it says. No line of it begins with a colon.
func inertJSON(text string) string {
	return strings.NewReplacer("##[", `#\u0023[`, "##vso[", `#\u0023vso[`).Replace(text)
}

// inert changes lines that a runner would read as commands. They begin a line, after spaces, with two
// colons, or have ##[ or, for Azure Pipelines, ##vso[ anywhere.
func inert(text string) string {
	apart := strings.NewReplacer("##[", "## [", "##vso[", "## vso[")
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "::") {
			b.WriteString("| ")
		}
		b.WriteString(apart.Replace(line))
	}
	return b.String()
}
