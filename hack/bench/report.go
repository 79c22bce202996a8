package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// markdown prints the figures as tables.
func (r record) markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; commit %s, %s; %d interleaved rounds, `make bench%s`, with `--settle %s`; %s. Other work on the machine used %.2f cores (median of all runs; at most %.2f).\n",
		r.Machine, r.Commit, r.Date, r.Rounds, r.command(), r.Settle, r.Note, r.Other, r.OtherMax)
	for _, net := range r.nets() {
		fmt.Fprintf(&b, "\n### Network: %s\n\n", net)
		r.table(&b, net)
	}
	for _, net := range r.nets() {
		r.splitTable(&b, net)
	}
	for _, net := range r.nets() {
		r.callsTable(&b, net)
	}
	r.scaleTable(&b)
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	if _, err := io.WriteString(t, b.String()); err != nil {
		return fmt.Errorf("printing the tables: %w", err)
	}
	return t.Flush()
}

// command returns the variables for make that repeat the measurement.
func (r record) command() string {
	if r.Flags == "" {
		return ""
	}
	return fmt.Sprintf(" ROUNDS=%d BENCHFLAGS='%s'", r.Rounds, r.Flags)
}

// nets returns the networks that were measured.
func (r record) nets() []string {
	var all []string
	for _, w := range r.Rows {
		if !slices.Contains(all, w.Net) {
			all = append(all, w.Net)
		}
	}
	return all
}

func (r record) table(b *strings.Builder, net string) {
	header(b, "pods", "variant", "wall s", "min - max", "CPU s", "min - max", "wall / floor", "CPU / floor", "down s", "down / floor", "peak MiB", "residual MiB")
	for _, w := range r.Rows {
		if w.Net == net {
			fmt.Fprintf(b, "| %d\t| %s\t| %s\t| %s\t| %s\t| %s\t| %.3f\t| %s\t| %.1f\t| %.2f\t|\n", w.Pods, w.Variant,
				w.Wall, w.CPU, w.Wall.ratio(), w.CPU.ratio(), w.Down.Median, w.Down.ratio(), w.Peak, w.Residual)
		}
	}
}

// String has the median and the range, as two columns.
func (f figure) String() string { return fmt.Sprintf("%.3f\t| %.3f - %.3f", f.Median, f.Min, f.Max) }

func (f figure) ratio() string {
	if f.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", f.Ratio)
}

// splitTable prints the CPU time per pod by program, if it was recorded.
func (r record) splitTable(b *strings.Builder, net string) {
	var unknown []string
	columns := slices.Concat(parts, []string{splitExits, splitAll})
	first := true
	for _, w := range r.Rows {
		if w.Net != net || w.Split == nil {
			continue
		}
		if first {
			fmt.Fprintf(b, "\n### CPU time by program, network: %s, %d pods, ms per pod\n\n", net, w.Pods)
			header(b, slices.Concat([]string{"variant"}, columns)...)
			first = false
		}
		fmt.Fprintf(b, "| %s", w.Variant)
		for _, c := range columns {
			fmt.Fprintf(b, "\t| %.1f", w.Split[c])
		}
		b.WriteString("\t|\n")
		unknown = append(unknown, w.Others...)
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		fmt.Fprintf(b, "\nOther: %s.\n", strings.Join(slices.Compact(unknown), ", "))
	}
}

func header(b *strings.Builder, columns ...string) {
	fmt.Fprintf(b, "| %s\t|\n|%s\n", strings.Join(columns, "\t| "), strings.Repeat("---\t|", len(columns)))
}

// compare prints the ratios of runonce to the floor in one line, each beside that of an earlier measurement.
func (r record) compare(w io.Writer, earlier record) error {
	var figures []string
	for _, row := range slices.Backward(r.Rows) {
		if row.Variant != embeddedName {
			continue
		}
		cpu, wall := row.CPU.ratio(), row.Wall.ratio()
		if e := earlier.find(row.Net, row.Pods, row.Variant); e != nil {
			cpu, wall = against(row.CPU, e.CPU), against(row.Wall, e.Wall)
		}
		figures = append(figures, fmt.Sprintf("N=%d CPU %s wall %s", row.Pods, cpu, wall))
	}
	_, err := fmt.Fprintf(w, "runonce embedded / floor, host network, %d rounds, settle %s: %s; in parentheses, at commit %s of %s\n",
		r.Rounds, r.Settle, strings.Join(figures, "; "), earlier.Commit, earlier.Date)
	if err != nil {
		return fmt.Errorf("printing the ratios: %w", err)
	}
	return nil
}

func against(now, then figure) string { return fmt.Sprintf("%s (%s)", now.ratio(), then.ratio()) }
