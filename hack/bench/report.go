package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

type key struct {
	name string
	n    int
}

type samples map[key][]sample

// report prints medians, ranges, and the ratios to the floor in the same round.
func report(w io.Writer, o options, all []variant, results samples) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; %d interleaved rounds.\n\n", machine(), o.rounds)
	fmt.Fprintln(&b, "| pods\t| variant\t| wall s\t| min - max\t| CPU s\t| wall / floor\t| CPU / floor\t| peak RSS MiB\t| residual MiB\t|")
	fmt.Fprintln(&b, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, n := range o.sizes {
		floor := results[key{"floor", n}]
		for _, c := range all {
			s := results[key{c.name, n}]
			walls := each(s, func(s sample) float64 { return s.wall.Seconds() })
			fmt.Fprintf(&b, "| %d\t| %s\t| %.3f\t| %.3f - %.3f\t| %.3f\t| %s\t| %s\t| %.1f\t| %.2f\t|\n", n, c.name,
				median(walls), slices.Min(walls), slices.Max(walls),
				median(each(s, func(s sample) float64 { return s.cpu.Seconds() })),
				ratio(s, floor, func(s sample) time.Duration { return s.wall }),
				ratio(s, floor, func(s sample) time.Duration { return s.cpu }),
				median(each(s, func(s sample) float64 { return float64(s.rss) / (1 << 20) })),
				median(each(s, func(s sample) float64 { return float64(s.residual) / (1 << 20) / float64(n) })))
		}
	}
	other := make([]float64, 0, len(results)*o.rounds)
	for _, s := range results {
		other = append(other, each(s, func(s sample) float64 { return s.other })...)
	}
	fmt.Fprintf(&b, "\nOther work on the machine used %.2f cores (median of all runs; at most %.2f).\n", median(other), slices.Max(other))
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	if _, err := io.WriteString(t, b.String()); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return t.Flush()
}

// ratio is the median of the ratios within each round.
func ratio(s, floor []sample, of func(sample) time.Duration) string {
	rounds := min(len(s), len(floor))
	r := make([]float64, 0, rounds)
	for i := range rounds {
		r = append(r, float64(of(s[i]))/float64(of(floor[i])))
	}
	if len(r) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(r))
}

func each[T cmp.Ordered](s []sample, f func(sample) T) []T {
	out := make([]T, 0, len(s))
	for _, x := range s {
		out = append(out, f(x))
	}
	return out
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

// machine names the hardware and the kernel.
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
	return fmt.Sprintf("%d cores, %s, Linux %s, %s, %s", goruntime.NumCPU(), model,
		strings.TrimSpace(string(kernel)), goruntime.Version(), time.Now().UTC().Format(time.DateOnly))
}
