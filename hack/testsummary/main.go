// Command testsummary prints what "go test -json" says, as go test does without -json, and at the end
// how many tests were skipped and why, which took longest, and again which failed, for those who see only the end of it:
//
//	(go test -json ./... || echo '{"Action":"fail"}') | go run ./hack/testsummary
//
// It ends with exit code 1 if anything has failed, or if there were no tests.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is one of "go doc test2json".
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// summary is what has become of the tests so far.
type summary struct {
	passed, failed int
	packages       int
	bad            bool                // also what is not a test may fail
	skipped        map[string]int      // by reason
	failures       []string            // what went wrong in each test that has failed
	output         map[string][]string // of tests that have not ended, and of packages
	slow           []slowTest
}

// slowTest is one that is not part of another one.
type slowTest struct {
	key     string
	seconds float64
}

// At the end, the slowest tests are printed if they took so many seconds.
const slowTests, slowSeconds = 15, 20

func main() {
	s := summary{skipped: map[string]int{}, output: map[string][]string{}}
	if err := s.read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "testsummary: %v\n", err)
		os.Exit(2)
	}
	s.print(os.Stdout)
	if s.bad || s.packages == 0 {
		os.Exit(1)
	}
}

// read reads the events, and prints the output of packages and of tests that have failed.
func (s *summary) read(in io.Reader, out io.Writer) error {
	for d := json.NewDecoder(in); ; {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the events of go test: %w", err)
		}
		s.add(e, out)
	}
}

func (s *summary) add(e event, out io.Writer) {
	key := e.Package + " " + e.Test
	s.time(e)
	switch {
	case e.Test == "" && e.Output == "PASS\n": // as the next line says
	case e.Action == "output" && e.Test == "", e.Action == "build-output":
		_, _ = io.WriteString(out, e.Output)
	case e.Action == "output":
		s.output[key] = append(s.output[key], e.Output)
	case e.Action == "build-fail", e.Action == "fail":
		s.fail(e, out)
	case e.Test == "":
		if e.Action == "pass" || e.Action == "skip" {
			s.packages++
		}
	case e.Action == "pass":
		s.passed++
	case e.Action == "skip":
		s.skipped[reasonOf(s.output[key])]++
	default:
		return
	}
	if e.Action != "output" {
		delete(s.output, key)
	}
}

// time keeps how long a test took that is not part of another one.
func (s *summary) time(e event) {
	if e.Elapsed >= slowSeconds && e.Test != "" && !strings.Contains(e.Test, "/") {
		s.slow = append(s.slow, slowTest{e.Package + " " + e.Test, e.Elapsed})
	}
}

// fail prints the output of a test that has failed, or of those that a failed package has not ended: one of
// them has the trace of a panic, and what a test said before the process ended.
func (s *summary) fail(e event, out io.Writer) {
	s.bad = true
	keys := []string{e.Package + " " + e.Test}
	if e.Test == "" {
		keys = slices.DeleteFunc(slices.Sorted(maps.Keys(s.output)), func(key string) bool {
			return !strings.HasPrefix(key, keys[0]) || !said(s.output[key])
		})
	}
	for _, key := range keys {
		s.failed++
		_, _ = io.WriteString(out, strings.Join(s.output[key], ""))
		if said(s.output[key]) { // which a test does not whose parts have failed
			s.failures = append(s.failures, failure(key, s.output[key]))
		}
		delete(s.output, key)
	}
}

// said reports whether there is more than what go test says of the test.
func said(output []string) bool {
	return slices.ContainsFunc(output, func(line string) bool {
		line = strings.TrimSpace(line)
		return !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---")
	})
}

// Of a test that has failed, each error is printed again with so many lines before and after it, or without one its end.
const linesBefore, linesAfter, endLines = 12, 12, 40

// errorLine is where a test or a story says what is wrong.
var errorLine = regexp.MustCompile(`^\s*(?:FAIL: |\w+_test\.go:\d+: )`)

func failure(key string, output []string) string {
	text, shown := "FAIL "+key+"\n", 0
	for i, line := range output {
		if errorLine.MatchString(line) {
			next := min(i+1+linesAfter, len(output))
			text += strings.Join(output[max(i-linesBefore, shown):next], "")
			shown = next
		}
	}
	if shown == 0 {
		return text + strings.Join(output[max(0, len(output)-endLines):], "")
	}
	return text
}

// where is what stands around a reason: the line of the test, or the command of a story.
var where = regexp.MustCompile(`^(?:\w+\.go:\d+: |> (?:\[[^]]*\] )?skip )'?(.*?)'?$`)

// reasonOf returns why a test was skipped, which is the last line of its output that is not go test's.
func reasonOf(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		return where.ReplaceAllString(line, "$1")
	}
	return "no reason given"
}

// print prints the numbers, the most frequent reason first, and what failed.
func (s *summary) print(out io.Writer) {
	total := 0
	for _, n := range s.skipped {
		total += n
	}
	_, _ = fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, total)
	reasons := slices.SortedFunc(maps.Keys(s.skipped), func(a, b string) int {
		if n := s.skipped[b] - s.skipped[a]; n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	for _, reason := range reasons {
		_, _ = fmt.Fprintf(out, "%5d skipped: %s\n", s.skipped[reason], reason)
	}
	slices.SortFunc(s.slow, func(a, b slowTest) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range s.slow[:min(len(s.slow), slowTests)] {
		_, _ = fmt.Fprintf(out, "%5.0f s: %s\n", t.seconds, t.key)
	}
	_, _ = io.WriteString(out, strings.Join(s.failures, ""))
}
