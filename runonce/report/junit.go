package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/runonce/runonce/runonce"
)

// junitReport has the root element that Jenkins, GitLab and others expect, with one suite.
type junitReport struct {
	XMLName xml.Name `xml:"testsuites"`
	junitCounts
	Suite junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name string `xml:"name,attr"`
	junitCounts
	Skipped int         `xml:"skipped,attr"`
	Cases   []junitCase `xml:"testcase"`
}

type junitCounts struct {
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Errors   int    `xml:"errors,attr"`
	Time     string `xml:"time,attr"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Error   *junitFailure `xml:"error,omitempty"`
	Skipped *junitSkipped `xml:"skipped,omitempty"`
	Output  string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type junitSkipped struct {
	Message string `xml:"message,attr"`
}

// JUnit writes the report as a JUnit test suite: one test case for each pod, in a class named
// after its namespace. A pod that did not reach its goal is a failure, also a rejected or
// preempted one, or one that depends on such; a canceled one is skipped, and so is an optional one. A run that
// could not start is one case with an error.
func (r Report) JUnit(w io.Writer) error {
	suite := junitSuite{Name: "runonce"}
	suite.Time = fmt.Sprintf("%.3f", r.ElapsedSeconds)
	for i := range r.Results {
		suite.Cases = append(suite.Cases, r.Results[i].junit())
	}
	suite.Cases = append(suite.Cases, r.Failure.junit(suite.Time)...)
	for _, c := range suite.Cases {
		suite.Tests++
		switch {
		case c.Failure != nil:
			suite.Failures++
		case c.Error != nil:
			suite.Errors++
		case c.Skipped != nil:
			suite.Skipped++
		}
	}
	data, err := xml.MarshalIndent(junitReport{junitCounts: suite.junitCounts, Suite: suite}, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, xml.Header+string(data)+"\n")
	return err
}

// junit returns the test case of a run that could not start.
func (f Failure) junit(elapsed string) []junitCase {
	var lines []string
	if f.Error != "" {
		lines = append(lines, f.Error)
	}
	for _, fault := range f.Faults {
		lines = append(lines, join(": ", fault.Place(), fault.Field, fault.Message))
	}
	if len(lines) == 0 {
		return nil
	}
	e := &junitFailure{Type: "NotStarted", Message: validXML(lines[0]), Text: validXML(strings.Join(lines, "\n"))}
	return []junitCase{{Class: "runonce", Name: "run", Time: elapsed, Error: e}}
}

func (r *Result) junit() junitCase {
	c := junitCase{Class: r.Namespace, Name: r.Name, File: r.Source, Time: fmt.Sprintf("%.3f", r.ElapsedSeconds)}
	why := validXML(strings.Trim(r.Reason+": "+messageOf(r.Reason, r.Message, r.PreemptedBy), ": "))
	switch outcome := r.Outcome; {
	case outcome.AtGoal() && r.RemoveError != "":
		c.Failure = &junitFailure{Type: "NotRemoved", Message: validXML(r.RemoveError)}
	case outcome.AtGoal():
	case r.Optional:
		c.Skipped = &junitSkipped{Message: join(": ", "optional", why)}
	case outcome == runonce.Removed, outcome == runonce.Canceled && !r.isDependent():
		c.Skipped = &junitSkipped{Message: why}
	default:
		c.Failure = &junitFailure{Type: string(outcome), Message: why, Text: why}
	}
	var out strings.Builder
	if r.Outcome.AtGoal() && c.Failure == nil && why != "" {
		out.WriteString(why + "\n")
	}
	for _, container := range r.Containers {
		for _, line := range slices.Concat(container.LogTail, container.Output) {
			out.WriteString(validXML(container.Name+": "+line) + "\n")
		}
	}
	c.Output = out.String()
	return c
}

// validXML replaces the characters that XML does not allow.
func validXML(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || (r >= 0x20 && r != utf8.RuneError && r != 0xFFFE && r != 0xFFFF) {
			return r
		}
		return '?'
	}, s)
}
