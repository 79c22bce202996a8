package progress

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/runonce/runonce/runonce"
)

const (
	// statusPause is the least time between two states of the command.
	statusPause = time.Second
	// extension is how much longer the service manager waits while something moves, and stopSlack
	// how much longer than a grace period.
	extension = time.Minute
	stopSlack = 10 * time.Second
	// maxStatus is how long a state may be, in runes. systemd reads 4096 bytes.
	maxStatus = 500
)

// manager is the service manager that started this process, such as systemd, and what it was told.
type manager struct {
	send  func(message string) // nil without a service manager
	goal  string               // what a pod is that has reached its goal
	timer *time.Timer
	last  time.Time
	text  string
	moved string // what had moved by then
	most  int    // pods at their goal at once
	ready bool   // that was told
	final bool   // the last state was told
}

// Goal sets what pods are waited for to be.
func (d *Display) Goal(until runonce.Until) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.manager.goal = string(until)
}

// Ready tells the service manager that every pod has reached its goal.
func (d *Display) Ready() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.manager.ready {
		d.manager.ready = true
		d.tell("READY=1")
	}
}

// Stopping tells the service manager that the command ends, or stops pods.
func (d *Display) Stopping() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tell("STOPPING=1")
}

// Results tells the service manager how the pods are at the end. It is told no other state then.
func (d *Display) Results(results []runonce.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	results = slices.DeleteFunc(slices.Clone(results), func(r runonce.Result) bool { return r.Reason == runonce.ReasonPruned })
	var others []string
	up := 0
	for _, r := range results {
		if r.Outcome.AtGoal() {
			up++
		}
		if text := troubled(r.Pod.Namespace+"/"+r.Pod.Name, string(r.Outcome), r.Reason); text != "" {
			others = append(others, text)
		}
	}
	d.tellStatus(d.counted(up, len(results), others))
	d.manager.final = true
}

// tell sends a message, if there is a service manager. The caller holds the lock.
func (d *Display) tell(message string) {
	if d.manager.send != nil {
		d.manager.send(message)
	}
}

func (d *Display) tellStatus(text string) {
	d.manager.text = text
	d.tell("STATUS=" + shorten(printable(text), maxStatus))
}

// awakeManager has the service manager told soon, but not more often than once in statusPause. The
// caller holds the lock.
func (d *Display) awakeManager() {
	if m := &d.manager; m.send != nil && m.timer == nil {
		m.timer = time.AfterFunc(max(0, time.Until(m.last.Add(statusPause))), d.tellManager)
	}
}

// tellManager tells the service manager what has changed.
func (d *Display) tellManager() {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, now := &d.manager, time.Now()
	if m.timer == nil {
		return // the display is closed
	}
	m.timer, m.last = nil, now
	if text := d.statusText(now); text != "" && text != m.text && !m.final {
		d.tellStatus(text)
	}
	if longer := d.longer(now); longer > 0 {
		d.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", longer.Microseconds()))
	}
	if len(d.status(now)) > 0 || len(d.transfers) > 0 {
		d.awakeManager()
	}
}

// longer returns how much more time the command needs than now: until pods that stop have to be
// gone; or a while, if more of an image has come, or another pod has reached its goal, since the
// last time.
func (d *Display) longer(now time.Time) (longer time.Duration) {
	m, up := &d.manager, 0
	for _, p := range d.pods.order {
		if p.State == "Stopping" && now.Before(p.due) {
			longer = max(longer, p.due.Sub(now)+stopSlack)
		} else if runonce.Outcome(p.State).AtGoal() {
			up++
		}
	}
	m.most = max(m.most, up)
	moved := fmt.Sprint(m.most)
	for _, t := range d.transfers {
		moved += fmt.Sprintf(" %s %s %d", t.Name, t.Step, t.Done)
	}
	if moved != m.moved {
		m.moved, longer = moved, max(longer, extension)
	}
	return longer
}

// statusText describes what the command does, like "3 of 5 pods running; pulling IMAGE 42%".
func (d *Display) statusText(now time.Time) string {
	var doing, others []string
	up := 0
	for _, p := range d.pods.order {
		if runonce.Outcome(p.State).AtGoal() {
			up++
		}
		if text := troubled(p.name, p.State, p.Reason); isOutcome(p.State) && text != "" {
			others = append(others, text)
		}
	}
	for _, t := range d.transfers {
		text := string(t.Step) + " " + t.Name
		if t.Total > 0 {
			text += fmt.Sprintf(" %d%%", min(100, 100*t.Done/t.Total))
		}
		doing = append(doing, text)
	}
	waiting, stopping := d.pods.awaited(now)
	if d.pods.pending > 0 {
		doing = append(doing, slices.DeleteFunc(waiting, func(text string) bool {
			return len(d.transfers) > 0 && strings.HasSuffix(text, imagesText)
		})...)
	}
	if len(stopping) > 0 {
		doing = append(doing, "stopping "+list(stopping, ", "))
	}
	for _, w := range d.waits {
		doing = append(doing, *w)
	}
	if d.pods.total == 0 && !d.pods.planned {
		return list(doing, "; ")
	}
	return d.counted(up, d.pods.total, append(others, doing...))
}

// counted says how many of the pods have reached their goal, and what else there is to say.
func (d *Display) counted(up, total int, more []string) string {
	text := fmt.Sprintf("%d of %s %s", up, runonce.Count(total, "pod"), d.manager.goal)
	if len(more) > 0 {
		text += "; " + list(more, "; ")
	}
	return text
}

// troubled says what is wrong with a pod that has an outcome, "" for nothing.
func troubled(name, outcome, reason string) string {
	switch {
	case reason == runonce.ReasonRolledBack:
		return name + ": " + reason
	case runonce.Outcome(outcome).AtGoal():
		return ""
	case reason == "" || reason == outcome:
		return name + ": " + outcome
	}
	return fmt.Sprintf("%s: %s (%s)", name, outcome, reason)
}
