package progress

import (
	"fmt"
	"slices"
	"time"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/engine"
)

// rateWindow is the time over which the rate of a transfer is measured.
const rateWindow = 10 * time.Second

// Transfer is an image that is pulled, unpacked or imported.
type transfer struct {
	engine.Transfer
	begin   time.Time
	samples []sample // of this step within the window, oldest first
}

// sample is how far a transfer was at a time.
type sample struct {
	at   time.Time
	done int64
}

// transfer shows how far an image is.
func (d *Display) transfer(now engine.Transfer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.transfers, func(t *transfer) bool { return t.Name == now.Name })
	if i < 0 {
		i = len(d.transfers)
		d.transfers = append(d.transfers, &transfer{begin: time.Now()})
	}
	t := d.transfers[i]
	begins := t.Step != now.Step && !now.Ended
	if t.Transfer = now; begins {
		t.samples = nil
	}
	t.record(time.Now())
	if begins && t.Step == engine.Pulling {
		d.event("pulling image "+t.Name, "pulling image", "image", t.Name)
	}
	if now.Ended {
		d.transfers = slices.Delete(d.transfers, i, i+1)
		d.transferEnds(t)
	}
	d.awake()
}

// transferEnds reports success; an error is reported by who has asked for the transfer.
func (d *Display) transferEnds(t *transfer) {
	elapsed := time.Since(t.begin)
	if elapsed = elapsed.Round(time.Millisecond); elapsed > time.Second {
		elapsed = elapsed.Round(100 * time.Millisecond)
	}
	what := fmt.Sprintf("%s (%s in %s)", t.Name, megabytes(t.Done, t.Done), elapsed)
	switch {
	case t.Err != nil:
	case t.Step == engine.Pulling:
		d.event("pulled image "+what, "pulled image", "image", t.Name, "bytes", t.Done, "elapsed", elapsed)
	case t.Step == engine.Importing:
		d.event("imported "+what, "imported images", "archive", t.Name, "bytes", t.Done, "elapsed", elapsed)
	}
}

// record keeps a sample a second.
func (t *transfer) record(now time.Time) {
	if n := len(t.samples); n > 0 && now.Sub(t.samples[n-1].at) < time.Second {
		return
	}
	for len(t.samples) > 1 && now.Sub(t.samples[1].at) >= rateWindow {
		t.samples = t.samples[1:]
	}
	t.samples = append(t.samples, sample{now, t.Done})
}

// rate returns the bytes per second; known is false in the first second.
func (t *transfer) rate(now time.Time) (rate float64, known bool) {
	if len(t.samples) == 0 {
		return 0, false
	}
	first := t.samples[0]
	passed := now.Sub(first.at)
	if passed < time.Second {
		return 0, false
	}
	return float64(t.Done-first.done) / passed.Seconds(), true
}

// text describes the transfer in a line.
func (t *transfer) text(now time.Time) string {
	text := string(t.Step) + " " + t.Name
	if numbers := t.numbers(now); numbers != "" {
		text += " " + numbers
	}
	return text
}

// numbers says how far the transfer is, how fast, and how much longer it takes.
func (t *transfer) numbers(now time.Time) string {
	switch {
	case t.Step == engine.Unpacking && t.Total > 0:
		return fmt.Sprintf("%d of %s", t.Done, runonce.Count(int(t.Total), "layer"))
	case t.Step == engine.Unpacking || t.Step == engine.Reading:
		return ""
	case t.Done == 0 && t.Total == 0:
		return "(no data yet)"
	}
	text := megabytes(t.Done, t.Done)
	if t.Total > 0 {
		text = megabytes(t.Done, t.Total)
	}
	rate, known := t.rate(now)
	if known {
		text += fmt.Sprintf(", %.1f MB/s", rate/1e6)
	}
	// The first bytes say nothing about the rest.
	if left := t.Total - t.Done; left > 0 && rate > 0 && t.Done >= min(t.Total/100, 1e6) {
		text += fmt.Sprintf(", %s left", seconds(time.Duration(float64(left)/rate*float64(time.Second))))
	}
	return text
}

// megabytes returns "4.2 of 9.1 MB" or, if done is total, "9.1 MB".
func megabytes(done, total int64) string {
	unit, digits, scale := "MB", 1, 1e6
	switch {
	case total >= 1e9:
		unit, scale = "GB", 1e9
	case total >= 1e7:
		digits = 0
	}
	text := fmt.Sprintf("%.*f %s", digits, float64(total)/scale, unit)
	if done != total {
		text = fmt.Sprintf("%.*f of %s", digits, float64(done)/scale, text)
	}
	return text
}
