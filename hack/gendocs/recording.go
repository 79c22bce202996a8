package main

import (
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
)

// recorded are the steps of the demo that a recording shows, by a word of theirs.
var recorded = []string{"Four pods", "too big", "crashes"}

// The sizes of a recording, in pixels, and its times, in seconds.
const (
	lineHeight, charWidth, margin = 20, 8.4, 20
	typing, running, reading      = 0.8, 1.2, 2.5
)

// record writes an animated image of a terminal with steps of the demo, whose page "make demo" compares with a real run.
func record(page, file string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("reading the demo: %w", err)
	}
	steps := stepsOf(string(text))
	var shown []string
	for _, word := range recorded {
		i := slices.IndexFunc(steps, func(s string) bool { return strings.Contains(s, word) })
		if i < 0 {
			return fmt.Errorf("%s has no step with %q", page, word)
		}
		shown = append(shown, steps[i])
	}
	if err := os.WriteFile(file, []byte(image(shown)), 0o644); err != nil {
		return fmt.Errorf("writing the recording: %w", err)
	}
	return nil
}

// stepsOf returns the steps of the demo: a comment, and commands with their output.
func stepsOf(page string) []string {
	_, text, _ := strings.Cut(page, "```console\n")
	text, _, _ = strings.Cut(text, "```")
	var steps []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "# ") || len(steps) == 0 {
			steps = append(steps, "")
		}
		steps[len(steps)-1] += line
	}
	return steps
}

// image returns an SVG in which the lines of the steps appear one after the other.
func image(steps []string) string {
	var lines strings.Builder
	y, width, at := margin, 0, 0.0
	for _, step := range steps {
		for line := range strings.Lines(strings.TrimSpace(step) + "\n\n") {
			line = strings.TrimSuffix(line, "\n")
			class := "output"
			switch {
			case strings.HasPrefix(line, "# "):
				class = "comment"
			case strings.HasPrefix(line, "$ "):
				class = "command"
				at += typing
			}
			y += lineHeight
			width = max(width, len([]rune(line)))
			fmt.Fprintf(&lines, "<text x=\"%d\" y=\"%d\" class=\"%s\" style=\"animation-delay:%.1fs\">%s</text>\n", margin, y, class, at, html.EscapeString(line))
			if class == "command" {
				at += running
			}
		}
		at += reading
	}
	w, h := int(float64(width)*charWidth)+2*margin, y
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">
<title>runonce runs four pods, rejects one that is too big, and shows why another has failed</title>
<style>
rect { fill: #1e1e2e }
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #cdd6f4; white-space: pre; animation: appear 0.01s both }
.comment { fill: #7f849c }
.command { fill: #a6e3a1; font-weight: bold }
@keyframes appear { from { opacity: 0 } to { opacity: 1 } }
@media (prefers-reduced-motion) { text { animation: none } }
</style>
<rect width="100%%" height="100%%" rx="8"/>
%s</svg>
`, w, h, w, h, lines.String())
}
