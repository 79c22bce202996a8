package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"time"
)

// record is one measurement, which the tables and the plot are made of.
type record struct {
	Commit  string `json:"commit"`
	Machine string `json:"machine"`
	Date    string `json:"date"`
	Flags   string `json:"flags,omitempty"` // of the benchmark
	Rounds  int    `json:"rounds"`
	Settle  string `json:"settle"`
	Note    string `json:"note"` // on the file systems
	// Other work on the machine, in cores: the median of all runs, and the most.
	Other    float64 `json:"other"`
	OtherMax float64 `json:"otherMax"`
	Rows     []row   `json:"rows"`
	Steps    []step  `json:"steps,omitempty"`
}

// row is what a variant takes to start a number of pods.
type row struct {
	Net     string `json:"net"`
	Pods    int    `json:"pods"`
	Variant string `json:"variant"`
	Wall    figure `json:"wall"` // seconds
	CPU     figure `json:"cpu"`  // seconds
	Down    figure `json:"down"` // seconds
	// Medians in MiB, of the client, and for each pod of what remains.
	Peak     float64 `json:"peak"`
	Residual float64 `json:"residual"`
	// CPU time by part, if it was recorded, and what each part does, in one more run.
	Split  map[string]float64 `json:"split,omitempty"` // milliseconds per pod
	Others []string           `json:"others,omitempty"`
	Calls  map[string]calls   `json:"calls,omitempty"`
}

// figure is a figure of all rounds.
type figure struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	// Ratio is the median of the ratios to the floor within each round, 0 without a floor.
	Ratio float64 `json:"ratio,omitempty"`
}

type key struct {
	name string
	job
}

type samples map[key][]sample

// The keys of row.Split besides the parts.
const (
	splitExits = "exits"
	splitAll   = "all"
)

// newRecord computes the figures of all variants, in the order in which they are printed.
func newRecord(o options, note string, names []string, results samples) record {
	r := record{
		Commit: o.commit, Machine: machine(), Date: time.Now().UTC().Format(time.DateOnly), Flags: o.flags,
		Rounds: o.rounds, Settle: o.settle.String(), Note: note,
	}
	var load []float64
	for _, j := range o.jobs() {
		floor := results[key{floorName, j}]
		for _, name := range names {
			s := results[key{name, j}]
			if len(s) == 0 {
				continue
			}
			load = append(load, values(s, other)...)
			w := row{
				Net: j.net, Pods: j.n, Variant: name,
				Wall: newFigure(s, floor, wall), CPU: newFigure(s, floor, cpu), Down: newFigure(s, floor, down),
				Peak: round(median(values(s, peak))), Residual: round(median(values(s, residual)) / float64(j.n)),
			}
			w.split(s)
			r.Rows = append(r.Rows, w)
		}
	}
	if len(load) > 0 {
		r.Other, r.OtherMax = round(median(load)), round(slices.Max(load))
	}
	return r
}

func newFigure(s, floor []sample, of func(sample) float64) figure {
	v := values(s, of)
	return figure{round(median(v)), round(slices.Min(v)), round(slices.Max(v)), round(median(ratios(s, floor, of)))}
}

// split sets the CPU time by part, if it was recorded.
func (w *row) split(all []sample) {
	s := slices.DeleteFunc(slices.Clone(all), func(s sample) bool { return len(s.split) == 0 })
	if len(s) == 0 {
		return
	}
	w.Split = map[string]float64{}
	for _, part := range parts {
		w.Split[part] = round(median(values(s, func(s sample) float64 { return msPerPod(s.split, part, w.Pods) })))
	}
	total := func(s sample) float64 { return cpu(s) * 1000 / float64(w.Pods) }
	w.Split[splitAll] = round(median(values(s, total)))
	w.Split[splitExits] = round(median(values(s, func(s sample) float64 { return total(s) - msPerPod(s.split, "", w.Pods) })))
	w.Others = others(s[0].split)
}

// round keeps what a file needs: three decimals.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// find returns the row of a variant, nil if it was not measured.
func (r record) find(net string, pods int, variant string) *row {
	i := slices.IndexFunc(r.Rows, func(w row) bool { return w.Net == net && w.Pods == pods && w.Variant == variant })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

func readRecord(file string) (r record, err error) {
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("reading an earlier measurement: %w", err)
	}
	return r, nil
}

func (r record) write(file string) error {
	b, err := json.Marshal(r)
	if err == nil {
		b = bytes.ReplaceAll(b, []byte(`{"net"`), []byte("\n"+`{"net"`)) // a line for each row
		err = os.WriteFile(file, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the measurement: %w", err)
	}
	return nil
}

// commit names what is measured, if git knows it.
func commit(ctx context.Context) string {
	b, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// machine names the hardware, the kernel and the compiler.
func machine() string {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = []byte("unknown")
	}
	return fmt.Sprintf("%d cores, %s, Linux %s, %s", goruntime.NumCPU(), model, strings.TrimSpace(string(kernel)), goruntime.Version())
}
