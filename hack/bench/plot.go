package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// curve is a variant in the plot. Those with runc are dashed.
type curve struct {
	variant, label, color string
	dashed                bool
}

var curves = []curve{
	{podmanName, "podman kube play", "#b1361e", false},
	{floorName, "containerd client, runc", "#777777", true},
	{floorCrunName, "containerd client, crun", "#777777", false},
	{embeddedRuncName, "runonce, runc", "#1f5fbf", true},
	{embeddedName, "runonce", "#1f5fbf", false},
}

// The size of a panel and its margins, in pixels.
const (
	panelWidth, panelHeight         = 330, 230
	marginLeft, marginTop, textSize = 48, 34, 12
	legendHeight                    = 60
)

// plot draws what a pod takes, by the number of pods, as SVG: wall and CPU time side by side.
func (r record) plot() []byte {
	var b bytes.Buffer
	width, height := 2*(marginLeft+panelWidth)+20, marginTop+panelHeight+30+legendHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="%d" fill="#333333">`+"\n",
		width, height, width, height, textSize)
	fmt.Fprintf(&b, "<title>Time to start pods, by their number; %s, %s</title>\n", r.Machine, r.Date)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	r.panel(&b, marginLeft, "wall time per pod, ms", func(w row) float64 { return w.Wall.Median })
	r.panel(&b, 2*marginLeft+panelWidth+10, "CPU time per pod, ms", func(w row) float64 { return w.CPU.Median })
	for i, c := range curves {
		x, y := marginLeft+(i%3)*250, marginTop+panelHeight+50+(i/3)*22
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2.5"%s/>`, x, y-4, x+28, y-4, c.color, dash(c.dashed))
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", x+36, y, c.label)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func dash(dashed bool) string {
	if dashed {
		return ` stroke-dasharray="6 4"`
	}
	return ""
}

// scale maps figures to a panel.
type scale struct {
	left      int
	pods      []int // have the same distance
	top, step float64
}

func (s scale) x(pods int) float64 {
	return float64(s.left) + (float64(slices.Index(s.pods, pods))+0.5)*panelWidth/float64(len(s.pods))
}

func (s scale) y(v float64) float64 { return marginTop + panelHeight*(1-v/s.top) }

// panel draws one figure of all variants, on the host network.
func (r record) panel(b *bytes.Buffer, left int, title string, of func(row) float64) {
	perPod := func(w row) float64 { return of(w) * 1000 / float64(w.Pods) }
	s := scale{left: left}
	most := 0.0
	for _, w := range r.Rows {
		if w.Net == netHost && slices.ContainsFunc(curves, func(c curve) bool { return c.variant == w.Variant }) {
			most = max(most, perPod(w))
			s.pods = append(s.pods, w.Pods)
		}
	}
	slices.Sort(s.pods)
	s.pods = slices.Compact(s.pods)
	s.step = tick(most)
	s.top = s.step * math.Ceil(most/s.step)
	s.axes(b, title)
	for _, c := range curves {
		var points bytes.Buffer
		for _, n := range s.pods {
			if w := r.find(netHost, n, c.variant); w != nil {
				x, y := s.x(n), s.y(perPod(*w))
				fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
				fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x, y, c.color)
			}
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2.5"%s/>`+"\n", bytes.TrimSpace(points.Bytes()), c.color, dash(c.dashed))
	}
}

func (s scale) axes(b *bytes.Buffer, title string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", s.left, marginTop-14, title)
	for v := 0.0; v <= s.top; v += s.step {
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>`, s.left, s.y(v), s.left+panelWidth, s.y(v))
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", s.left-6, s.y(v)+4, v)
	}
	for _, n := range s.pods {
		unit := "pods"
		if n == 1 {
			unit = "pod"
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d %s</text>`+"\n", s.x(n), marginTop+panelHeight+18, n, unit)
	}
}

// tick returns the distance of the lines of a scale: 1, 2 or 5 times a power of ten, for three to six lines.
func tick(most float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(most/3)))
	for _, step := range []float64{1, 2, 5} {
		if most/(unit*step) <= 6 {
			return unit * step
		}
	}
	return unit * 10
}
