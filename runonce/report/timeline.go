package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// The measures of a timeline, in pixels.
const (
	timelineNames = 260 // width of the names
	timelineWidth = 900 // width of the bars
	timelineRow   = 22
	timelineTop   = 34
)

// Timeline writes the report as an SVG image: a row for each pod, and in it a bar from
// the start of the run to its outcome, with the steps of its start on top.
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
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing timeline: %w", err)
	}
	return nil
}

// bars draws one pod at height y.
func (r *Result) bars(b *strings.Builder, y int, scale func(float64) float64) {
	colors := map[string]string{"Running": "#b7e1b5", "Ready": "#b7e1b5", "Succeeded": "#b7e1b5", "Rejected": "#f4dca0", "Preempted": "#f4dca0", "Canceled": "#f4dca0"}
	color, ok := colors[string(r.Outcome)]
	if !ok {
		color = "#f2b3b0"
	}
	name := r.Namespace + "/" + r.Name
	fmt.Fprintf(b, `<text x="4" y="%d">%s</text>`+"\n", y+14, html.EscapeString(legal(name)))
	x, width := scale(0), scale(r.ElapsedSeconds)-scale(0)
	title := fmt.Sprintf("%s: %s after %gs", name, r.Outcome, r.ElapsedSeconds)
	bar(b, box{x, float64(y), width, timelineRow - 4, color}, title)
	for _, p := range r.Phases {
		x, width := scale(p.StartSeconds), scale(p.StartSeconds+p.Seconds)-scale(p.StartSeconds)
		bar(b, box{x, float64(y + 4), width, timelineRow - 12, "#5b8def"}, fmt.Sprintf("%s: %s, %gs", name, p.Name, p.Seconds))
	}
}

type box struct {
	x, y, width, height float64
	color               string
}

func bar(b *strings.Builder, at box, title string) {
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="#fff"><title>%s</title></rect>`+"\n",
		at.x, at.y, max(at.width, 1), at.height, at.color, html.EscapeString(legal(title)))
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
