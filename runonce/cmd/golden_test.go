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
	logFile = regexp.MustCompile(`(last lines of|log:) \S+?(:?)$`)
	ago     = regexp.MustCompile(`\S+ ago`)
	// fine is the first line of the details of a pod that only has a message too long for its row.
	fine = regexp.MustCompile(`^\S+: (Running|Ready|Succeeded|Canceled)\b`)
)

// canonicalTable replaces the cells of some columns, whose new widths move the others, and where
// times are real also the messages below the table.
func canonicalTable(text string, exact bool) string {
	var out strings.Builder
	blocks := strings.Split(strings.TrimSuffix(text, "\n"), "\n\n")
	for i, block := range blocks {
		lines := strings.Split(block, "\n")
		if len(lines) == 1 || !strings.HasPrefix(lines[1], " ") {
			out.WriteString(canonicalRows(lines, exact))
		} else if i > 0 && (exact || !fine.MatchString(block)) {
			out.WriteString("\n" + canonicalDetails(lines, exact))
		}
	}
	return out.String()
}

func canonicalRows(lines []string, exact bool) string {
	var out strings.Builder
	titles := gap.Split(lines[0], -1)
	for _, line := range lines {
		cells := gap.Split(line, -1)
		if len(cells) == len(titles) {
			for i, title := range titles {
				cells[i] = canonicalCell(title, cells[i], exact)
			}
		}
		out.WriteString(strings.Join(cells, "  ") + "\n")
	}
	return out.String()
}

func canonicalDetails(lines []string, exact bool) string {
	var out strings.Builder
	for i, line := range lines {
		if strings.TrimSpace(line) == "last events:" {
			break // only on a cluster, and not the same in every run
		}
		if !exact {
			line = ago.ReplaceAllString(line, "AGO")
		}
		logLine := logFile.MatchString(line) || strings.HasPrefix(line, "      ")
		if i > 0 && !exact && !logLine {
			continue
		}
		out.WriteString(logFile.ReplaceAllString(line, "$1 LOG$2") + "\n")
	}
	return out.String()
}

func canonicalCell(title, cell string, exact bool) string {
	switch {
	case title == "IP" && (cell != "-" || !exact):
		return "IP"
	case title == "CPU", title == "PEAK MEMORY": // the story of what is used has those
		return title
	case exact:
	case title == "TIME" || title == "AGE":
		return "TIME"
	case title == "REASON":
		cell, _, _ = strings.Cut(cell, ":")
		return ago.ReplaceAllString(cell, "AGO")
	case title == "MESSAGE":
		return "MESSAGE"
	}
	return cell
}

// canonicalJSON replaces the values of some keys.
func canonicalJSON(key string, value any, exact bool) any {
	if key == "podIPs" && !exact {
		return "" // on a cluster those of a pod stay when it has ended
	}
	switch v := value.(type) {
	case map[string]any:
		if key == "status" {
			return map[string]any{"phase": v["phase"]}
		}
		delete(v, "podEvents") // the story of events has those
		delete(v, "usage")
		delete(v, "runtime") // is the machine's
		if !exact {          // a cluster does not tell the digest
			delete(v, "digest")
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
	case "uid", "logPath", "finishedAt", "imageID", "digest":
		return value != "" && value != false
	case "elapsedSeconds":
		return "TIME"
	case "message":
		if !exact {
			return ""
		}
	}
	return value
}
