package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// step is what a command takes with many pods.
type step struct {
	Net     string  `json:"net"`
	Pods    int     `json:"pods"`
	Command string  `json:"command"`
	Wall    float64 `json:"wall"`   // seconds
	Client  float64 `json:"client"` // seconds of CPU time of the command's own process
	Busy    float64 `json:"busy"`   // seconds of CPU time of the whole machine
	Peak    float64 `json:"peak"`   // MiB
	Files   int64   `json:"files"`  // open at most
}

// many runs the commands that one uses with pods one after another, with each number of pods.
func (b *benchmark) many(ctx context.Context, v variant) error {
	for _, j := range b.scaleJobs() {
		for _, c := range []struct {
			name string
			args []string
		}{{"run", v.start(j)}, {"ps", v.list}, {"second run", v.start(j)}, {"down", v.down}} {
			taken, _, err := b.meter.run(ctx, v, c.args)
			if err != nil {
				return errors.Join(fmt.Errorf("%d pods, %s, %s: %w", j.n, j.net, c.name, err), v.remove(ctx))
			}
			s := step{
				Net: j.net, Pods: j.n, Command: c.name, Wall: round(taken.wall.Seconds()), Client: round(taken.client.Seconds()),
				Busy: round(taken.busy.Seconds()), Peak: round(float64(taken.peak) / (1 << 20)), Files: taken.files,
			}
			fmt.Fprintf(os.Stderr, "%d pods, %s, %s: wall %.2f s, CPU %.2f s\n", j.n, j.net, c.name, s.Wall, s.Busy)
			b.steps = append(b.steps, s)
		}
	}
	return nil
}

// scaleTable prints what commands take with many pods, each with the ratio to the smaller number before.
func (r record) scaleTable(b *strings.Builder) {
	if len(r.Steps) == 0 {
		return
	}
	b.WriteString("\n### Many pods\n\n")
	header(b, "network", "command", "pods", "wall s", "x", "client CPU s", "ms per pod", "machine CPU s", "peak MiB", "open files")
	for i, s := range r.Steps {
		times := "-"
		for _, before := range r.Steps[:i] {
			if before.Net == s.Net && before.Command == s.Command {
				times = fmt.Sprintf("%.1f", s.Wall/before.Wall)
			}
		}
		fmt.Fprintf(b, "| %s\t| `%s`\t| %d\t| %.2f\t| %s\t| %.2f\t| %.1f\t| %.2f\t| %.0f\t| %d\t|\n",
			s.Net, s.Command, s.Pods, s.Wall, times, s.Client, s.Client*1000/float64(s.Pods), s.Busy, s.Peak, s.Files)
	}
}
