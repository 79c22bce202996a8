package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/runonce/runonce/runonce"
)

// The sizes of a timeline, in pixels.
const (
	timelineNames = 260 // width of the names
	timelineWidth = 900 // width of the bars
	timelineRow   = 22
	timelineTop   = 58
)

// The colors of a timeline: pale ones for the whole time of a pod, by its outcome, and on it strong
// ones for its steps, which people tell apart who see few colors.
const (
	colorGood    = "#cfe8cf"
	colorRefused = "#f4e3b2"
	colorBad     = "#f2c3c0"
	colorPull    = "#0072b2"
	colorPrepare = "#999999"
	colorStart   = "#e69f00"
	colorWait    = "#009e73"
	colorOthers  = "#cc79a7"
)

// legend explains the colors.
func (r Report) legend(b *strings.Builder) {
	x := 4
	waits := slices.ContainsFunc(r.Results, func(res Result) bool {
		return slices.ContainsFunc(res.Phases, func(p Phase) bool { return p.Name == runonce.PhaseWaiting })
	})
	for _, entry := range [][2]string{
		{colorPrepare, "prepare"},
		{colorOthers, "wait for pods"},
		{colorPull, "pull image"},
		{colorStart, "start container"},
		{colorWait, "wait until running or ready"},
		{colorGood, "reached its goal"},
		{colorRefused, "rejected, preempted or canceled"},
		{colorBad, "failed"},
	} {
		if entry[0] == colorOthers && !waits {
			continue
		}
		fmt.Fprintf(b, `<rect x="%d" y="8" width="12" height="12" fill="%s"/>`+"\n", x, entry[0])
		fmt.Fprintf(b, `<text x="%d" y="18" fill="#333">%s</text>`+"\n", x+17, entry[1])
		x += 40 + 7*len(entry[1])
	}
}

// stepColor returns the color of a step by the first word of its name.
func stepColor(name string) string {
	switch word, _, _ := strings.Cut(name, " "); word {
	case "image":
		return colorPull
	case "wait":
		return colorOthers
	case "start", "postStart":
		return colorStart
	}
	return colorPrepare
}

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
	r.legend(&b)
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
	color := byOutcome(r.Outcome, colorBad, colorRefused, colorGood)
	name := r.Namespace + "/" + r.Name
	fmt.Fprintf(b, `<text x="4" y="%d">%s</text>`+"\n", y+14, html.EscapeString(validXML(name)))
	bar := func(from, elapsed float64, inset int, color, title string) {
		x := scale(from)
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s</title></rect>`+"\n",
			x, float64(y+inset), max(scale(from+elapsed)-x, 1), float64(timelineRow-4-2*inset), color, html.EscapeString(validXML(title)))
	}
	bar(0, r.ElapsedSeconds, 0, color, fmt.Sprintf("%s: %s after %gs", name, r.Outcome, r.ElapsedSeconds))
	started := 0.0
	for _, p := range r.Phases {
		bar(p.StartSeconds, p.Seconds, 4, stepColor(p.Name), fmt.Sprintf("%s: %s, %gs", name, p.Name, p.Seconds))
		started = max(started, p.StartSeconds+p.Seconds)
	}
	if wait := r.ElapsedSeconds - started; len(r.Phases) > 0 && wait > 0 {
		bar(started, wait, 7, colorWait, fmt.Sprintf("%s: started, %.3gs until %s", name, wait, r.Outcome))
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
