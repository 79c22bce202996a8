package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if diff := cmp.Diff(want, out.String()); diff != "" {
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
	if diff := cmp.Diff(want, out.String()); diff != "" || !s.bad {
		t.Error(diff)
	}
}

// TestFailure: of a long output, the errors and the end are printed again.
func TestFailure(t *testing.T) {
	t.Parallel()
	var output, want []string
	for i := range 200 {
		line := fmt.Sprintf("line %d\n", i)
		switch i {
		case 20, 25:
			line = "        FAIL: ../cases/a.txtar:7: exit code 143, want 1\n"
		case 50:
			line = "    a_test.go:12: wrong\n"
		}
		output = append(output, line)
		if i >= 20 && i < 40 || i >= 50 && i < 65 || i >= 140 {
			want = append(want, line)
		}
	}
	if diff := cmp.Diff("FAIL p TestLong\n"+strings.Join(want, ""), failure("p TestLong", output)); diff != "" {
		t.Error(diff)
	}
}
