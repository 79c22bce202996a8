package main

import (
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
	job
}

type samples map[key][]sample

// report prints medians, ranges, and the ratios to the floor in the same round, as Markdown.
func report(w io.Writer, o options, note string, all []variant, results samples) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; %d interleaved rounds; `runonce run --settle %s`; %s.\n", machine(), o.rounds, o.settle, note)
	for _, net := range o.nets {
		fmt.Fprintf(&b, "\n### Network: %s\n\n", net)
		table(&b, o, net, all, results)
	}
	if o.split > 0 {
		for _, net := range o.nets {
			splitTable(&b, job{net, o.split}, all, results)
		}
	}
	load := make([]float64, 0, len(results)*o.rounds)
	for _, s := range results {
		load = append(load, values(s, other)...)
	}
	if len(load) > 0 {
		fmt.Fprintf(&b, "\nOther work on the machine used %.2f cores (median of all runs; at most %.2f).\n", median(load), slices.Max(load))
	}
	return aligned(w, b.String())
}

func aligned(w io.Writer, text string) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	if _, err := io.WriteString(t, text); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return t.Flush()
}

func table(b *strings.Builder, o options, net string, all []variant, results samples) {
	header(b, "pods", "variant", "wall s", "min - max", "CPU s", "min - max", "wall / floor", "CPU / floor", "down s", "peak MiB", "residual MiB")
	for _, n := range o.counts() {
		floor := results[key{floorName, job{net, n}}]
		for _, v := range all {
			s := results[key{v.name, job{net, n}}]
			if len(s) == 0 {
				continue
			}
			fmt.Fprintf(b, "| %d\t| %s\t| %s\t| %s\t| %s\t| %s\t| %.3f\t| %.1f\t| %.2f\t|\n", n, v.name,
				spread(values(s, wall)), spread(values(s, cpu)), ratio(s, floor, wall), ratio(s, floor, cpu),
				median(values(s, down)), median(values(s, peak)), median(values(s, residual))/float64(n))
		}
	}
}

// splitTable prints the CPU time per pod by program, if it was recorded.
func splitTable(b *strings.Builder, j job, all []variant, results samples) {
	var unknown []string
	rows := 0
	for _, v := range all {
		s := slices.DeleteFunc(slices.Clone(results[key{v.name, j}]), func(s sample) bool { return len(s.split) == 0 })
		if len(s) == 0 {
			continue
		}
		if rows == 0 {
			fmt.Fprintf(b, "\n### CPU time by program, network: %s, %d pods, ms per pod\n\n", j.net, j.n)
			header(b, slices.Concat([]string{"variant"}, parts, []string{"exits", "all"})...)
		}
		rows++
		fmt.Fprintf(b, "| %s", v.name)
		for _, part := range parts {
			fmt.Fprintf(b, "\t| %.1f", median(values(s, func(s sample) float64 { return msPerPod(s.split, part, j.n) })))
		}
		total := func(s sample) float64 { return cpu(s) * 1000 / float64(j.n) }
		rest := func(s sample) float64 { return total(s) - msPerPod(s.split, "", j.n) }
		fmt.Fprintf(b, "\t| %.1f\t| %.1f\t|\n", median(values(s, rest)), median(values(s, total)))
		for _, name := range others(s[0].split) {
			if !slices.Contains(unknown, name) {
				unknown = append(unknown, name)
			}
		}
	}
	if len(unknown) > 0 {
		fmt.Fprintf(b, "\nOther: %s.\n", strings.Join(unknown, ", "))
	}
}

func header(b *strings.Builder, columns ...string) {
	fmt.Fprintf(b, "| %s\t|\n|%s\n", strings.Join(columns, "\t| "), strings.Repeat("---\t|", len(columns)))
}

// spread prints the median and the range.
func spread(v []float64) string {
	return fmt.Sprintf("%.3f\t| %.3f - %.3f", median(v), slices.Min(v), slices.Max(v))
}

// ratio is the median of the ratios within each round.
func ratio(s, floor []sample, of func(sample) float64) string {
	r := ratios(s, floor, of)
	if len(r) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(r))
}

// quickReport prints one line.
func quickReport(w io.Writer, o options, results samples) error {
	var figures []string
	for _, n := range slices.Backward(o.sizes) {
		j := job{netHost, n}
		s, floor := results[key{embeddedName, j}], results[key{floorName, j}]
		figures = append(figures, fmt.Sprintf("N=%d CPU %s wall %s", n, ratio(s, floor, cpu), ratio(s, floor, wall)))
	}
	_, err := fmt.Fprintf(w, "runonce embedded / floor, host network, %d rounds, settle %s: %s\n", o.rounds, o.settle, strings.Join(figures, "; "))
	if err != nil {
		return fmt.Errorf("printing the ratios: %w", err)
	}
	return nil
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
