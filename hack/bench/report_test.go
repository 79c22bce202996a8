package main

import (
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/hack/bench/cputime"
)

func runs(seconds ...float64) []sample {
	var all []sample
	for i, s := range seconds {
		d := time.Duration(s * float64(time.Second))
		all = append(all, sample{cost: cost{wall: d, cpu: 2 * d, other: s / 10, peak: 20 << 20}, round: i + 1, residual: 10 << 20, down: d / 2})
	}
	return all
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for want, v := range map[float64][]float64{0: nil, 3: {3}, 2: {9, 2, 1}, 2.5: {1, 4, 3, 2}} {
		if got := median(v); got != want {
			t.Errorf("median(%v) = %v, want %v", v, got, want)
		}
	}
}

// A round that a variant has missed counts for neither.
func TestRatioComparesTheSameRound(t *testing.T) {
	t.Parallel()
	ours, floor := runs(1, 4, 3), runs(2, 100, 2)
	floor = append(floor[:1], floor[2])
	if got := newFigure(ours, floor, wall).ratio(); got != "1.00" { // 0.5 and 1.5
		t.Errorf("ratio %s, want 1.00", got)
	}
	if got := newFigure(ours, nil, wall).ratio(); got != "-" {
		t.Errorf("ratio to nothing %q", got)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	o := options{sizes: []int{10}, large: []int{300}, nets: []string{netHost}, rounds: 3, split: 10}
	ours := runs(1, 1, 2)
	for i := range ours {
		ours[i].split = []cputime.Usage{{Name: "runonce", CPU: time.Second}, {Name: "runc:[2:INIT]", CPU: 500 * time.Millisecond}, {Name: "cat", CPU: time.Millisecond}}
	}
	results := samples{
		{floorName, job{netHost, 10}}:     runs(2, 2, 2),
		{embeddedName, job{netHost, 10}}:  ours,
		{embeddedName, job{netHost, 300}}: runs(30, 30, 33),
	}
	var b strings.Builder
	r := newRecord(o, "all files here", []string{floorName, embeddedName}, results)
	r.find(netHost, 10, embeddedName).Calls = map[string]calls{partShim: {"openat": 2, "open": 1, "read": 5, countWritten: 1.5}}
	r.Steps = []step{{Net: netHost, Pods: 10, Command: "ps", Wall: 0.5}, {Net: netHost, Pods: 30, Command: "ps", Wall: 1, Client: 0.3, Busy: 2, Peak: 50, Files: 7}}
	if err := r.markdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 interleaved rounds, `make bench`, with `--settle 0s`; all files here.",
		"| 10   | runonce embedded | 1.000  | 1.000 - 2.000   | 2.000  | 2.000 - 4.000   | 0.50         | 0.50        | 0.500  | 0.50         | 20.0     | 1.00         |",
		"| 300  | runonce embedded | 30.000 | 30.000 - 33.000 | 60.000 | 60.000 - 66.000 | -            | -           |",
		"| runonce embedded | 100.0  | 0.0    | 0.0  | 0.0         | 50.0               | 0.0     | 0.1   | 49.9  | 200.0 |",
		"Other: cat.",
		"| host    | `ps`    | 30   | 1.00   | 2.0 | 0.30         | 10.0       | 2.00          | 50       | 7          |",
		"| runonce embedded | shim | 8         | 0.0      | 0.0                | 3.0   | 0.0           | 0.0    | 0.0   | 0.0   | 1.5         | 0.0         |",
		"used 0.20 cores (median of all runs; at most 3.30)",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "300  | floor") {
		t.Errorf("a row without runs in\n%s", &b)
	}
}

func TestQuickReport(t *testing.T) {
	t.Parallel()
	o := options{sizes: []int{1, 30}, nets: []string{netHost}, rounds: 3}
	results := samples{
		{floorName, job{netHost, 1}}: runs(1), {embeddedName, job{netHost, 1}}: runs(1.5),
		{floorName, job{netHost, 30}}: runs(2), {embeddedName, job{netHost, 30}}: runs(1.5),
	}
	var b strings.Builder
	earlier := record{Commit: "abc", Date: "2026-01-02", Rows: []row{{Net: netHost, Pods: 30, Variant: embeddedName, CPU: figure{Ratio: 0.5}, Wall: figure{Ratio: 0.625}}}}
	if err := newRecord(o, "", []string{floorName, embeddedName}, results).compare(&b, earlier); err != nil {
		t.Fatal(err)
	}
	want := "runonce embedded / floor, host network, 3 rounds, settle 0s: N=30 CPU 0.75 (0.50) wall 0.75 (0.62); N=1 CPU 1.50 wall 1.50; " +
		"in parentheses, at commit abc of 2026-01-02\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestPartOf(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		"runonce": partClient, "containerd": partDaemon, "containerd-shim": partShim, "runonce-shim": partShim, "runc": partRuntime,
		"runc:[2:INIT]": partContainer, "pause": partContainer, "iptables-restor": partNetwork, "host-local": partNetwork, "cat": partOther,
	} {
		if got := partOf(program); got != want {
			t.Errorf("%s belongs to %q, want %q", program, got, want)
		}
	}
}
