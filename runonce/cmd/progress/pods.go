package progress

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// How long the messages of pods may be in lines, in runes. The result has them whole.
const (
	maxEvent   = 500 // in a line about one pod
	maxMessage = 160 // in a line about all pods
)

// podStates is what the pods of a command do.
type podStates struct {
	byUID   map[types.UID]*podState
	order   []*podState // by their first event
	pending int         // pods of a run that are waited for
	total   int
	planned bool // total is known, although there may have been no event
	// holders says what keeps a pod from being gone whose containers have ended; may be nil.
	holders func(*v1.Pod) []string
}

// podState is the last event of a pod.
type podState struct {
	runonce.Progress
	name    string
	printed string    // the last state and reason of which there was a line
	started bool      // by this command
	due     time.Time // when it has stopped at the latest
}

// imagesText is what a pod does whose images are pulled.
const imagesText = "waiting for its images"

// unprinted are reasons to wait that have no line of their own; the log has them. Every pod may
// have the first ones on its way; after the others, which are errors of the runtime, comes
// another event with the same message.
var unprinted = []string{
	"Settling", "ContainerCreating", "PodInitializing", "ContainersNotReady", "PodNotCompleted", "PodNotReady",
	runonce.ReasonQueued, failure.ReasonErrImagePull, failure.ReasonImageNeverPull, failure.ReasonInvalidImageName, failure.ReasonConfigError,
	failure.ReasonCreateError, failure.ReasonRunError, failure.ReasonFailedMount,
}

// Pod shows an event of a pod.
func (d *Display) Pod(e runonce.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.awake()
	p, wasDone := d.pods.add(e)
	onTheWay := e.State == "Stopped" || e.State == "Pulling" || e.State == "Waiting" && !wasDone && slices.Contains(unprinted, e.Reason)
	if onTheWay && d.log == nil {
		p.printed = ""
		return
	}
	said := e.State + " " + e.Reason
	if said == p.printed && e.State != "Retrying" {
		return
	}
	p.printed = said
	attributes := []any{"pod", p.name, "message", e.Message, "done", e.Done, "total", e.Total}
	if !e.RetryAt.IsZero() {
		attributes = append(attributes, "in", seconds(time.Until(e.RetryAt)))
	}
	d.event(p.line(), e.State, attributes...)
}

// line describes the last event.
func (p *podState) line() string {
	line := p.name + ": " + p.State
	switch p.State {
	case "Stopping":
		line += fmt.Sprintf(" (up to %s)", graceOf(p.Progress).Round(time.Second))
	case "Retrying":
		line += fmt.Sprintf(" in %s", seconds(time.Until(p.RetryAt)))
	}
	if p.Message != "" {
		line += ": " + shorten(p.Message, maxEvent)
	}
	return line
}

// Holders sets the function that says what keeps a pod from being gone when its grace period has passed: its
// finalizers, on a cluster.
func (d *Display) Holders(of func(*v1.Pod) []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pods.holders = of
}

// Plan says that the command carries out another plan, for these pods, and forgets all others.
func (d *Display) Plan(pods []*v1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pods.planned, d.pods.total, d.pods.pending = true, len(pods), len(pods)
	before := d.pods.byUID
	d.pods.byUID, d.pods.order = map[types.UID]*podState{}, nil
	for _, pod := range pods {
		if p := before[pod.UID]; p != nil {
			d.pods.byUID[pod.UID] = p
			d.pods.order = append(d.pods.order, p)
			if isOutcome(p.State) {
				d.pods.pending--
			}
			if p.State == string(runonce.Failed) {
				p.printed = "" // it is tried again
			}
		}
	}
	d.awake()
}

// EndRun ends the wait for pods.
func (d *Display) EndRun() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pods.pending = 0
}

// add adds an event to its pod, and says whether that was at its goal or had ended before.
func (s *podStates) add(e runonce.Progress) (p *podState, wasDone bool) {
	if p = s.byUID[e.Pod.UID]; p == nil {
		if s.byUID == nil {
			s.byUID = map[types.UID]*podState{}
		}
		p = &podState{name: podspec.FullName(e.Pod)}
		s.byUID[e.Pod.UID] = p
		s.order = append(s.order, p)
	}
	wasDone = isOutcome(p.State)
	p.Progress = e
	p.started = p.started || e.State == "Pulling" || e.State == "Starting"
	switch {
	case e.State == "Stopped" || e.State == "StopFailed":
	case e.State != "Stopping":
		s.pending, s.total = e.Total-e.Done, e.Total
	default:
		p.due = time.Now().Add(graceOf(e))
		if p.started {
			s.pending = 0 // the run has ended
		}
	}
	return p, wasDone
}

// graceOf is how long the pod may take to stop.
func graceOf(e runonce.Progress) time.Duration {
	if e.Within > 0 {
		return e.Within
	}
	return podspec.GracePeriod(e.Pod)
}

func isOutcome(state string) bool {
	return !slices.Contains([]string{"", "Stopping", "Stopped", "StopFailed", "Starting", "Waiting", "Retrying", "Pulling"}, state)
}

// texts says for which pods the command waits.
func (s *podStates) texts(now time.Time) (parts []string) {
	waiting, stopping := s.awaited(now)
	if s.pending > 0 {
		queued := s.queued()
		others := 0
		for _, q := range queued {
			others += q.pods
		}
		if n := s.pending - len(waiting) - others; n > 0 {
			n = s.pending - others - min(2, len(waiting))
			waiting = append(waiting[:min(2, len(waiting))], fmt.Sprintf("%d not started yet", n))
		}
		text := fmt.Sprintf("waiting for %d of %s: %s", s.pending, runonce.Count(s.total, "pod"), list(waiting, "; "))
		parts = append(parts, strings.TrimSuffix(text, ": "))
		for i, q := range queued {
			parts = append(parts, q.text(i == 0))
		}
	}
	if len(stopping) > 0 {
		parts = append(parts, "stopping "+list(stopping, ", "))
	}
	return parts
}

// awaited returns the pods that are not at their goal, and those that are stopping.
func (s *podStates) awaited(now time.Time) (waiting, stopping []string) {
	for _, p := range s.order {
		switch p.State {
		case "Stopping":
			stopping = append(stopping, p.name+p.graceLeft(now, s.holders))
		case "Starting", "Waiting", "Retrying", "Pulling":
			if p.isQueued() {
				continue
			}
			waiting = append(waiting, p.name+": "+p.waitsFor(now))
		}
	}
	return waiting, stopping
}

// queue is how many pods wait for the same room.
type queue struct {
	lacks string
	pods  int
}

func (p *podState) isQueued() bool { return p.State == "Waiting" && p.Reason == runonce.ReasonQueued }

// queued returns how many pods wait for which room, the most first.
func (s *podStates) queued() []queue {
	var all []queue
	for _, p := range s.order {
		if !p.isQueued() {
			continue
		}
		at := slices.IndexFunc(all, func(q queue) bool { return q.lacks == p.Lacks })
		if at < 0 {
			at = len(all)
			all = append(all, queue{lacks: p.Lacks})
		}
		all[at].pods++
	}
	slices.SortStableFunc(all, func(a, b queue) int { return b.pods - a.pods })
	return all
}

func (q queue) text(first bool) string {
	verb := "wait"
	if q.pods == 1 {
		verb = "waits"
	}
	text := fmt.Sprintf("%s %s for %s", runonce.Count(q.pods, "pod"), verb, q.lacks)
	if first {
		text = "queued: " + text
	}
	return text
}

// waitsFor says for what a pod waits that is not at its goal.
func (p *podState) waitsFor(now time.Time) string {
	text := p.Message
	switch left := p.RetryAt.Sub(now); {
	case p.State == "Pulling":
		return imagesText
	case p.State == "Starting" || text == "":
		return "starting"
	case p.State == "Retrying" && left > 0:
		text = fmt.Sprintf("retrying in %s: %s", seconds(left), text)
	case p.State == "Retrying":
		text = "trying again: " + text
	}
	return shorten(text, maxMessage)
}

// shorten cuts a text that has more than so many characters, after a word if one ends in its second half.
func shorten(text string, most int) string {
	return cut(text, most, func(rune) int { return 1 })
}

// cut is shorten for characters of different widths.
func cut(text string, most int, width func(rune) int) string {
	const ellipsis = '…'
	used, end := 0, 0 // end is where the text has to end to leave room for the ellipsis
	for at, r := range text {
		if used+width(ellipsis) <= most {
			end = at
		}
		if used += width(r); used > most {
			kept := text[:end]
			if space := strings.LastIndexByte(kept, ' '); text[end] != ' ' && space > end/2 {
				kept = kept[:space]
			}
			return strings.TrimRight(kept, " ,;:(") + string(ellipsis)
		}
	}
	return text
}

// graceLeft says how much longer a pod may take to stop, and what it waits for then.
func (p *podState) graceLeft(now time.Time, holders func(*v1.Pod) []string) string {
	if left := p.due.Sub(now); left > 0 {
		return fmt.Sprintf(" (up to %s left)", seconds(left))
	}
	if holders != nil {
		if names := holders(p.Pod); len(names) > 0 {
			return " (its grace period has passed; it stays until its finalizers are removed: " + strings.Join(names, ", ") + ")"
		}
	}
	return " (its grace period has passed)"
}
