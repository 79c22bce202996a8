package decode

import (
	"bytes"
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
)

// syntaxHint explains the commonest ways in which YAML does not parse.
func syntaxHint(c *chunk, line int, message string) string {
	if h := cmp.Or(c.templateNear(line), invisible(c.lineAt(line))); h != "" {
		return h
	}
	text := c.text
	if strings.Contains(message, "cannot start any token") && bytes.Contains(text, []byte{'\t'}) {
		return "indent with spaces, not tabs"
	}
	if bytes.Contains(text, []byte("\n<<<<<<< ")) || bytes.HasPrefix(text, []byte("<<<<<<< ")) {
		return "contains merge conflict markers"
	}
	if gluedDash.Match(text) {
		return "an item needs a space after its dash: \"- name\""
	}
	for _, h := range syntaxHints {
		if strings.Contains(message, h[0]) {
			return h[1]
		}
	}
	return ""
}

// gluedDash matches an item of a list without a space after its dash.
var gluedDash = regexp.MustCompile(`(?m)^ *-[A-Za-z]+:( |$)`)

// syntaxHints explains what the YAML parser says.
var syntaxHints = [][2]string{
	{"mapping values are not allowed", `quote a value that contains ": ", and check the indentation`},
	{"unexpected end of stream", "a quote or a bracket is not closed"},
	{"could not find expected ':'", "a key needs a colon and a space after it; check the line above, too"},
	{"did not find expected key", "check the indentation of this line and those around it"},
	{"did not find expected '-' indicator", "check the indentation of this line and those around it"},
	{"did not find expected ',' or", "a comma or a closing bracket is missing"},
	{"did not find expected <document start>", "a document begins with ---; check the indentation and the end of the document above"},
	{"unknown escape character", `write \\ for a backslash, or use single quotes`},
}

// Foreign says so when a file's name is that of something else than a manifest.
func Foreign(file string) string {
	base := strings.ToLower(path.Base(file))
	ext := path.Ext(base)
	foreign := []string{
		".md", ".txt", ".rst", ".adoc", ".sh", ".py", ".go", ".env", ".toml", ".ini", ".conf", ".cfg", ".tf", ".tpl", ".lock", ".sum",
		".mk", ".xml", ".html", ".csv", ".log", ".orig", ".rej", ".patch", ".diff",
	}
	if slices.Contains(foreign, ext) || ext == "" && slices.Contains([]string{"readme", "license", "licence", "makefile", "dockerfile", "notice", "changelog", "owners"}, base) {
		return "every file in a directory is read: move files that are not manifests elsewhere"
	}
	return ""
}
