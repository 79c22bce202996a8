package progress

import (
	"fmt"
	"slices"
	"time"

	"github.com/runonce/runonce/internal/podspec"
)

// lastLineTimeout bounds the time for the last line after the second signal: the terminal may
// be stopped.
const lastLineTimeout = time.Second

// Effect is what an interrupt does.
type Effect int

// The effects.
const (
	effectNone     Effect = iota // the command ends at once
	EffectReport                 // a run reports its pods
	EffectRemove                 // a run removes its pods
	EffectHandOver               // a run removes its pods, or others do if it exits before
	EffectStop                   // all pods are stopped, also those of earlier runs
	EffectLeave                  // the pods are left as they are
	EffectAbandon                // down no longer waits for pods
)

// OnInterrupt sets what an interrupt does from now on.
func (d *Display) OnInterrupt(e Effect) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.effect = e
}

// Interrupted says what the first signal does, and what a second one would do.
func (d *Display) Interrupted() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tell("STOPPING=1")
	grace, some := d.pods.grace(time.Now(), d.effect == EffectStop)
	var text string
	switch {
	case d.effect == effectNone:
		return
	case d.effect == EffectAbandon:
		text = `not waiting for the pods that are still stopping, "runonce down" removes them; a second signal exits at once`
	case (d.effect == EffectRemove || d.effect == EffectHandOver) && some:
		text = fmt.Sprintf("removing the pods of this run, which takes up to %s; a second signal exits at once, without waiting for them", seconds(grace))
	case d.effect == EffectStop && some:
		text = fmt.Sprintf("stopping the pods, which takes up to %s; a second signal exits at once, without waiting for them", seconds(grace))
	case d.effect == EffectLeave || d.effect == EffectStop:
		text = "the pods are left as they are; a second signal exits at once"
	default:
		text = "reporting the pods, which are left as they are; a second signal exits at once, without a report"
	}
	d.event("interrupted: "+text, "interrupted", "effect", text)
}

// Exiting says what the second signal leaves.
func (d *Display) Exiting() {
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.screen.clear()
		text := "interrupted again: exiting at once" + d.leaves()
		if d.only != nil {
			d.only.Error(text)
			return
		}
		_, _ = fmt.Fprintln(d.screen, "runonce: "+text)
		d.screen.flush()
	}()
	select {
	case <-printed:
	case <-time.After(lastLineTimeout):
	}
}

// leaves says what becomes of the pods when the command exits at once.
func (d *Display) leaves() string {
	left, stopping := d.pods.left()
	var text string
	switch {
	case len(left)+len(stopping) == 0:
		return ""
	case d.effect == EffectHandOver:
		return ", pods are removed in the background: " + list(slices.Concat(left, stopping), ", ") + `; "runonce ps" shows those that are left`
	case len(left) > 0:
		text += ", pods are left as they are: " + list(left, ", ")
	}
	if len(stopping) > 0 {
		text += ", pods were told to stop: " + list(stopping, ", ")
	}
	return text + `; "runonce ps" shows them, "runonce down" removes them`
}

// grace is how long it takes at most to stop the pods that were started, or all, and have not stopped.
// some is false if there are none.
func (s *podStates) grace(now time.Time, all bool) (most time.Duration, some bool) {
	for _, p := range s.order {
		switch {
		case !p.started && !all || p.State == "Stopped":
		case p.State == "Stopping":
			most, some = max(most, p.due.Sub(now)), true
		default:
			most, some = max(most, podspec.GracePeriod(p.Pod)), true
		}
	}
	return most, some
}

// left returns the pods that were started, and those that were told to stop and may not have.
func (s *podStates) left() (started, stopping []string) {
	for _, p := range s.order {
		switch {
		case p.State == "Stopping" || p.State == "StopFailed":
			stopping = append(stopping, p.name)
		case p.State != "Stopped" && p.started:
			started = append(started, p.name)
		}
	}
	return started, stopping
}
