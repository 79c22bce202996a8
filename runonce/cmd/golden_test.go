package cmd_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// canonical is the same for the same story: it takes out of an output what is not the same in every run: addresses, and
// where time is real also times and the words of the machine.
func canonical(t *testing.T, path, text string, exact bool) string {
	t.Helper()
	switch filepath.Ext(path) {
	case ".table":
		return canonicalTable(text, exact)
	case ".json":
		var document any
		if err := json.Unmarshal([]byte(text), &document); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, text)
		}
		data, err := json.MarshalIndent(canonicalJSON("", document, exact), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(data) + "\n"
	}
	return text
}

var (
	gap     = regexp.MustCompile(` {2,}`)
	age     = regexp.MustCompile(`\b\S+ ago\b`)
	logFile = regexp.MustCompile(`last lines of \S+:`)
)

// canonicalTable replaces the cells of some columns, whose new widths move the others.
func canonicalTable(text string, exact bool) string {
	var out strings.Builder
	var titles []string
	for line := range strings.Lines(text) {
		line = logFile.ReplaceAllString(strings.TrimRight(line, "\n"), "last lines of LOG:")
		cells := gap.Split(line, -1)
		switch {
		case line == "" || strings.HasPrefix(line, " "):
			titles = nil
		case titles == nil:
			titles = cells
		case len(cells) == len(titles):
			for i, title := range titles {
				cells[i] = canonicalCell(title, cells[i], exact)
			}
		}
		if titles == nil {
			out.WriteString(line + "\n")
			continue
		}
		out.WriteString(strings.Join(cells, "  ") + "\n")
	}
	return out.String()
}

func canonicalCell(title, cell string, exact bool) string {
	switch {
	case title == "IP" && cell != "-":
		return "IP"
	case exact:
	case title == "TIME" || title == "AGE":
		return "TIME"
	case title == "REASON":
		cell, _, _ = strings.Cut(cell, ":")
		cell = age.ReplaceAllString(cell, "AGE ago")
	case title == "MESSAGE":
		return "MESSAGE"
	}
	return cell
}

// canonicalJSON replaces the values of some keys.
func canonicalJSON(key string, value any, exact bool) any {
	switch v := value.(type) {
	case map[string]any:
		if key == "status" {
			return map[string]any{"phase": v["phase"]}
		}
		for k, field := range v {
			v[k] = canonicalJSON(k, field, exact)
		}
		return v
	case []any:
		if key == "phases" || key == "podIPs" {
			return fmt.Sprintf("%d of them", min(len(v), 1))
		}
		for i, e := range v {
			v[i] = canonicalJSON("", e, exact)
		}
		return v
	}
	switch key {
	case "uid", "logPath":
		return value != "" && value != false
	case "elapsedSeconds", "finishedAt":
		return "TIME"
	case "message":
		if !exact {
			return ""
		}
	}
	return value
}
