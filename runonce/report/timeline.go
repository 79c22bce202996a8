package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"github.com/runonce/runonce/runonce"
)

// The sizes of a timeline, in pixels.
const (
	timelineNames = 260 // width of the names
	timelineWidth = 900 // width of the bars
	timelineRow   = 22
	timelineTop   = 34
)

// Timeline writes the report as an SVG image: a row for each pod, with a bar from the start of
// the run to its outcome, and on it the steps of its start.
func (r Report) Timeline(w io.Writer) error {
	total := max(r.ElapsedSeconds, 0.001)
	for _, res := range r.Results {
		total = max(total, res.ElapsedSeconds)
	}
	scale := func(seconds float64) float64 { return timelineNames + seconds/total*timelineWidth }
	height := timelineTop + timelineRow*len(r.Results) + 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		timelineNames+timelineWidth+20, height)
	for _, at := range ticks(total) {
		x := scale(at)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+"\n", x, timelineTop-8, x, height)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#666">%gs</text>`+"\n", x, timelineTop-14, at)
	}
	for i := range r.Results {
		r.Results[i].bars(&b, timelineTop+timelineRow*i, scale)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// bars draws one pod at height y.
func (r *Result) bars(b *strings.Builder, y int, scale func(float64) float64) {
	color := "#f2b3b0"
	switch r.Outcome {
	case runonce.Running, runonce.Ready, runonce.Succeeded:
		color = "#b7e1b5"
	case runonce.Rejected, runonce.Preempted, runonce.Canceled:
		color = "#f4dca0"
	case runonce.Failed, runonce.TimedOut, runonce.Invalid:
	}
	name := r.Namespace + "/" + r.Name
	fmt.Fprintf(b, `<text x="4" y="%d">%s</text>`+"\n", y+14, html.EscapeString(validXML(name)))
	bar := func(from, elapsed float64, inset int, color, title string) {
		x := scale(from)
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="#fff"><title>%s</title></rect>`+"\n",
			x, float64(y+inset), max(scale(from+elapsed)-x, 1), float64(timelineRow-4-2*inset), color, html.EscapeString(validXML(title)))
	}
	bar(0, r.ElapsedSeconds, 0, color, fmt.Sprintf("%s: %s after %gs", name, r.Outcome, r.ElapsedSeconds))
	for _, p := range r.Phases {
		bar(p.StartSeconds, p.Seconds, 4, "#5b8def", fmt.Sprintf("%s: %s, %gs", name, p.Name, p.Seconds))
	}
}

// ticks returns about six round numbers between 0 and total.
func ticks(total float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(total/5)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if total/(step*factor) <= 7 {
			step *= factor
			break
		}
	}
	var at []float64
	for i := 0; float64(i)*step <= total; i++ {
		at = append(at, math.Round(float64(i)*step*1e6)/1e6)
	}
	return at
}
