package cmd

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/report"
)

// sameSignal is how long after the first signal others count as the same one: timeout(1) and
// others signal the process and then its group.
const sameSignal = 200 * time.Millisecond

// lastLineTimeout bounds the time for the last line after the second signal: the terminal may
// be stopped.
const lastLineTimeout = time.Second

// What an interrupt does.
type interruptEffect int

const (
	effectNone    interruptEffect = iota // the command ends at once
	effectReport                         // a run reports its pods
	effectRemove                         // a run removes its pods
	effectAbandon                        // down no longer waits for pods
)

// watch cancels the context on the first signal and exits on the second, until done is closed.
// SIGHUP is never the second one: it comes by itself when a terminal is closed.
func (p *program) watch(cancel context.CancelCauseFunc, done <-chan struct{}) {
	var first time.Time
	for {
		select {
		case got := <-p.io.Signals:
			sig, ok := got.(syscall.Signal)
			switch {
			case !ok:
			case first.IsZero():
				first = time.Now()
				p.display.interrupted()
				cancel(Interrupt{sig})
			case sig == syscall.SIGHUP || time.Since(first) < sameSignal:
			default:
				p.display.exiting()
				p.io.Exit(report.ExitSignal(sig))
				return
			}
		case <-done:
			return
		}
	}
}

// onInterrupt sets what an interrupt does from now on.
func (d *display) onInterrupt(e interruptEffect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.effect = e
}

// interrupted says what the first signal does, and what a second one would do.
func (d *display) interrupted() {
	d.mu.Lock()
	defer d.mu.Unlock()
	grace, some := d.pods.grace(time.Now())
	var text string
	switch {
	case d.effect == effectNone:
		return
	case d.effect == effectAbandon:
		text = `not waiting for the pods that are still stopping, "runonce down" removes them; a second signal exits at once`
	case d.effect == effectRemove && some:
		text = fmt.Sprintf("removing the pods of this run, which takes up to %s; a second signal exits at once and leaves them as they are", seconds(grace))
	default:
		text = "reporting the pods, which are left as they are; a second signal exits at once, without a report"
	}
	d.event("interrupted: "+text, "interrupted", "effect", text)
}

// exiting says what the second signal leaves.
func (d *display) exiting() {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.screen.clear()
		text := "interrupted again: exiting at once"
		if left := d.pods.left(); len(left) > 0 {
			text += `, pods are left as they are: ` + list(left, ", ") + `; "runonce ps" shows them, "runonce down" removes them`
		}
		if d.json {
			d.log.Error(text)
			return
		}
		_, _ = fmt.Fprintln(d.screen, "runonce: "+text)
	}()
	select {
	case <-printed:
	case <-time.After(lastLineTimeout):
	}
}

// grace is how long it takes at most to stop the pods that were started and have not stopped.
// some is false if there are none.
func (s *podStates) grace(now time.Time) (most time.Duration, some bool) {
	for _, p := range s.order {
		switch {
		case !p.started || p.State == "Stopped":
		case p.State == "Stopping":
			most, some = max(most, p.due.Sub(now)), true
		default:
			most, some = max(most, podspec.GracePeriod(p.Pod)), true
		}
	}
	return most, some
}

// left returns the pods that were started or should have stopped.
func (s *podStates) left() []string {
	var names []string
	for _, p := range s.order {
		if p.State != "Stopped" && (p.started || p.State == "Stopping" || p.State == "StopFailed") {
			names = append(names, p.name)
		}
	}
	return names
}
