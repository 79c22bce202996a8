package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: noise\n"}
{"Action":"pass","Package":"p","Test":"TestA/long","Elapsed":29}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":30.4}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:16: needs root\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestS/x","Output":"        > [memory] skip 'needs real containers'\n"}
{"Action":"skip","Package":"p","Test":"TestS/x"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: needs root\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestD","Output":"    d_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestD","Elapsed":100}
{"Action":"output","Package":"p","Output":"FAIL p 0.1s\n"}
{"Action":"fail","Package":"p"}
`

func TestSummary(t *testing.T) {
	t.Parallel()
	s := summary{skipped: map[string]int{}, output: map[string][]string{}}
	var out bytes.Buffer
	if err := s.read(strings.NewReader(events), &out); err != nil {
		t.Fatal(err)
	}
	s.print(&out)
	want := `    d_test.go:1: wrong
FAIL p 0.1s
2 passed, 1 failed, 3 skipped
    2 skipped: needs root
    1 skipped: needs real containers
  100 s: p TestD
   30 s: p TestA
FAIL p TestD
    d_test.go:1: wrong
`
	if !s.bad {
		t.Error("nothing has failed")
	}
	if diff := gocmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestUnended: what a test has said is not lost when its process has ended before it.
func TestUnended(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"output","Package":"p","Test":"TestWaits","Output":"=== PAUSE TestWaits\n"}
{"Action":"output","Package":"p","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"pp","Test":"TestGoesOn","Output":"so far so good\n"}
{"Action":"output","Package":"p","Output":"FAIL p 1s\n"}
{"Action":"fail","Package":"p"}
`
	s := summary{skipped: map[string]int{}, output: map[string][]string{}}
	var out bytes.Buffer
	if err := s.read(strings.NewReader(events), &out); err != nil {
		t.Fatal(err)
	}
	s.print(&out)
	want := "FAIL p 1s\npanic: test timed out\n0 passed, 1 failed, 0 skipped\nFAIL p TestHangs\npanic: test timed out\n"
	if diff := gocmp.Diff(want, out.String()); diff != "" || !s.bad {
		t.Error(diff)
	}
}

// TestFailure: each error is printed again, with what is around it, or else the end.
func TestFailure(t *testing.T) {
	t.Parallel()
	lines := func(errors map[int]string) (output []string) {
		for i := range 200 {
			output = append(output, cmp.Or(errors[i], fmt.Sprintf("line %d\n", i)))
		}
		return output
	}
	story := "        FAIL: ../cases/a.txtar:7: exit code 143, want 1\n"
	for name, c := range map[string]struct {
		output []string
		want   [][2]int
	}{
		"errors":  {lines(map[int]string{5: story, 20: story, 25: story, 150: "    a_test.go:12: wrong\n"}), [][2]int{{0, 38}, {138, 163}}},
		"neither": {lines(nil), [][2]int{{160, 200}}},
	} {
		want := "FAIL p TestLong\n"
		for _, part := range c.want {
			want += strings.Join(c.output[part[0]:part[1]], "")
		}
		if diff := gocmp.Diff(want, failure("p TestLong", c.output)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
