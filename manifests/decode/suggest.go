package decode

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// syntaxHint explains the most common errors in YAML.
func syntaxHint(c *chunk, line int, message string) string {
	if h := cmp.Or(c.templateNear(line), invisible(c.lineAt(line))); h != "" {
		return h
	}
	text := c.text
	if start := bytes.TrimSpace(text); bytes.HasPrefix(start, []byte("//")) || bytes.HasPrefix(start, []byte("/*")) {
		return "JSON has no comments"
	}
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

// syntaxHints explain messages of the YAML parser.
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

// Foreign returns a hint when a file's name says that it is not a manifest.
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

// templateHint returns a hint when a template engine should have replaced something in the
// text, or "".
func templateHint(text []byte) string {
	for _, mark := range [][2]string{{"{{", "}}"}, {"{%", "%}"}, {"${", "}"}, {"<%", "%>"}} {
		i := bytes.Index(text, []byte(mark[0]))
		if i >= 0 && bytes.Contains(text[i:], []byte(mark[1])) {
			return "looks like an unrendered template: " + mark[0] + " " + mark[1]
		}
	}
	return ""
}

// invisible returns a hint about a character in the text that looks like a space or cannot be
// seen, or "".
func invisible(text []byte) string {
	for _, r := range string(text) {
		switch r {
		case '\u00a0', '\u2007', '\u202f', '\u200b', '\u200c', '\u200d', '\u2060', '\ufeff', '\u00ad', '\u3000':
			return fmt.Sprintf("contains the invisible character %U: retype the text", r)
		}
	}
	return ""
}

// MaxNames is the length of the longest list of names that Nearest searches. With as many names to
// look for, longer ones would take minutes.
const MaxNames = 200

// Nearest returns the most similar of the names, or "" when none is similar enough or there are
// more than MaxNames.
func Nearest(name string, names []string) string {
	const longest = 64
	if len(name) > longest || len(names) > MaxNames {
		return ""
	}
	best, least := "", 1+len(name)/3
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
		if d := len(n) - len(name); max(d, -d) > least {
			continue
		}
		if d := Distance(strings.ToLower(name), strings.ToLower(n)); d < least || (d == least && best == "") {
			best, least = n, d
		}
	}
	return best
}

// DidYouMean suggests the most similar of the names, or returns "".
func DidYouMean(name string, names []string) string {
	near := Nearest(name, names)
	if near == "" || near == name {
		return ""
	}
	return "did you mean " + near + "?"
}

// Distance counts the letters to insert, remove, change or swap to turn a into b.
func Distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
