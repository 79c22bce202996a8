package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/runonce/runonce/runonce"
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr,omitempty"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
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
// preempted one; a canceled one is skipped.
func (r Report) JUnit(w io.Writer) error {
	suite := junitSuite{Name: "runonce", Tests: len(r.Results), Time: fmt.Sprintf("%.3f", r.ElapsedSeconds)}
	for i := range r.Results {
		c := r.Results[i].junit()
		if c.Failure != nil {
			suite.Failures++
		}
		if c.Skipped != nil {
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	data, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, xml.Header+string(data)+"\n")
	return err
}

func (r *Result) junit() junitCase {
	c := junitCase{Class: r.Namespace, Name: r.Name, File: r.Source, Time: fmt.Sprintf("%.3f", r.ElapsedSeconds)}
	why := validXML(strings.Trim(r.Reason+": "+r.Message, ": "))
	switch r.Outcome {
	case runonce.Running, runonce.Ready, runonce.Succeeded:
		if r.RemoveError != "" {
			c.Failure = &junitFailure{Type: "NotRemoved", Message: validXML(r.RemoveError)}
		}
	case runonce.Failed, runonce.TimedOut, runonce.Invalid, runonce.Rejected, runonce.Preempted:
		c.Failure = &junitFailure{Type: string(r.Outcome), Message: why, Text: why}
	case runonce.Canceled:
		c.Skipped = &junitSkipped{Message: why}
	}
	var out strings.Builder
	for _, container := range r.Containers {
		for _, line := range container.LogTail {
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
