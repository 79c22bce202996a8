package guess

import (
	"bytes"
	"strings"
)

// TemplateNear says so when a line near the fault, or else the document, holds what a
// template engine should have replaced. line counts from 0 within text.
func TemplateNear(text []byte, line int) string {
	near := text
	if line >= 0 {
		lines := bytes.SplitN(text, []byte{'\n'}, line+2)
		if len(lines) > line {
			near = lines[line]
		}
	}
	if h := Template(near); h != "" {
		return h
	}
	return Template(text)
}

// Syntax explains the commonest ways in which YAML does not parse.
func Syntax(text []byte, line int, message string) string {
	if h := TemplateNear(text, line); h != "" {
		return h
	}
	if lines := bytes.SplitN(text, []byte{'\n'}, line+2); line >= 0 && line < len(lines) {
		if h := Invisible(lines[line]); h != "" {
			return h
		}
	}
	if strings.Contains(message, "cannot start any token") && bytes.Contains(text, []byte{'\t'}) {
		return "indent with spaces, not tabs"
	}
	if strings.Contains(message, "mapping values are not allowed") {
		return "quote a value that holds \": \", and check the indentation"
	}
	return ""
}
