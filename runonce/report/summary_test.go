package report_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

func summary(t *testing.T, r report.Report, faults decode.Diagnostics, limit int) string {
	t.Helper()
	var b strings.Builder
	if err := r.Summary(&b, faults, limit); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSummary: the table and what is known of pods with problems; no text of theirs is Markdown, HTML or the end of a block.
func TestSummary(t *testing.T) {
	t.Parallel()
	good, bad := &v1.Pod{}, &v1.Pod{}
	good.Namespace, good.Name, bad.Namespace, bad.Name = "default", "good", "default", "bad"
	const evil = "</pre> **x** & \x1b[31m<script>"
	r := report.New([]runonce.Result{
		{Pod: good, Outcome: runonce.Running},
		{Pod: bad, Outcome: runonce.Failed, Reason: "Error", Message: "two\nlines of " + evil, EventLines: []string{evil}},
	}, 1, 12300*time.Millisecond)
	faults := decode.Diagnostics{{File: "a.yaml", Line: 3, Field: "spec.x", Message: evil, Severity: decode.SeverityWarning}}
	got := summary(t, r, faults, 1<<20)
	const safe = "&lt;/pre&gt; **x** &amp; \ufffd[31m&lt;script&gt;"
	for _, want := range []string{
		"### runonce: exit code 1 after 12.3s, 1 of 2 pods without a problem\n\n<pre>\nPOD   OUTCOME",
		"<details><summary>default/bad: Failed, Error</summary>\n\n<pre>\ntwo\nlines of " + safe + "\n",
		"</pre>\n\n</details>\n", "\n<pre>\na.yaml:3: spec.x: &lt;/pre&gt; **x**",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "<script>") || strings.Count(got, "<pre>") != 3 || strings.Count(got, "</pre>") != 3 {
		t.Errorf("the text is not quoted:\n%s", got)
	}
	failed := report.New(nil, 2, 0)
	failed.Error = "no <pod>"
	if got := summary(t, failed, nil, 1<<20); !strings.Contains(got, "exit code 2") || !strings.Contains(got, "<pre>\nno &lt;pod&gt;\n</pre>") {
		t.Error(got)
	}
}

// TestLongSummary: whole parts are left out of one that would be too long.
func TestLongSummary(t *testing.T) {
	t.Parallel()
	var results []runonce.Result
	for range 50 {
		pod := &v1.Pod{}
		pod.Name = "bad"
		results = append(results, runonce.Result{Pod: pod, Outcome: runonce.Failed, Message: strings.Repeat("x", 1000)})
	}
	r := report.New(results, 1, 0)
	got := summary(t, r, nil, 20_000)
	if len(got) > 20_000 || len(got) < 15_000 || !strings.HasSuffix(got, "</details>\n\nThe rest is in the log.\n") {
		t.Errorf("%d bytes, ends in %q", len(got), got[max(0, len(got)-60):])
	}
	if got := summary(t, r, nil, 10); got != "" {
		t.Errorf("no room: %q", got)
	}
}
