// Package progress shows on standard error what a command does and what it waits for: a line for
// each event, and on a terminal bars below the lines. Results and log messages are written through
// it, so that they stay apart from the bars.
package progress

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/engine"
)

const (
	// silence is how long nothing is printed before a line says what is waited for.
	silence = 10 * time.Second
	// longSilence is the longest time before the same line of a service comes again.
	longSilence = 5 * time.Minute
	// refresh is how often the bars on a terminal change. It is also the time before the first
	// ones: a short command has none.
	refresh = 250 * time.Millisecond
)

// Mode is how a display shows what happens.
type Mode int

// The modes.
const (
	Off   Mode = iota
	Lines      // a line for each event, and one after ten seconds without one
	Bars       // lines, with bars below them
)

// Display is what a command shows. Until Configure is called it shows nothing. It is safe for
// concurrent use.
type Display struct {
	screen *screen

	mu        sync.Mutex
	mode      Mode
	log       *slog.Logger // gets the events instead of the screen, unless it is nil
	only      *slog.Logger // the log, if nothing else may be printed
	timer     *time.Timer  // for the next tick; nil while none is due
	last      time.Time    // of the last line
	service   bool
	waiting   string        // the last line that says what is waited for
	pause     time.Duration // of a service before the same one comes again
	pods      podStates
	transfers []*transfer // that have not ended, oldest first
	waits     []*string   // for what else the command waits, oldest first
	effect    Effect
	manager   manager
}

// New returns a display on standard error. notify, unless it is nil, is called with messages for the
// service manager, as of sd_notify(3): the state of the command, and that it may take longer while
// something moves.
func New(stderr io.Writer, notify func(message string)) *Display {
	return &Display{screen: &screen{out: stderr}, manager: manager{send: notify, goal: string(runonce.UntilRunning), moved: "0"}}
}

// Stderr returns the writer for other lines on standard error, which stay above the bars.
func (d *Display) Stderr() io.Writer { return d.screen }

// Stdout returns a writer for standard output, which may be the same terminal. A write removes the
// bars first.
func (d *Display) Stdout(stdout io.Writer) io.Writer { return belowBars{stdout, d.screen} }

// Configure sets how the display shows what happens. Unless log is nil, it gets the events instead
// of standard error; structured says that its messages are JSON or go to the journal, and so nothing
// else may be printed.
func (d *Display) Configure(mode Mode, log *slog.Logger, structured bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mode, d.log = mode, log; mode == Off {
		d.screen.clear()
	}
	if structured {
		d.only = log
	}
}

// Service says that the command waits for its pods as long as it runs.
func (d *Display) Service() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.service = true
}

// OnTransfer returns the callback for the engine, nil if nothing would be shown.
func (d *Display) OnTransfer() func(engine.Transfer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mode == Off && d.log == nil && d.manager.send == nil {
		return nil
	}
	return d.transfer
}

// Close ends the display: nothing more is shown.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mode, d.log = Off, nil
	if d.timer != nil {
		d.timer.Stop()
	}
	if d.manager.timer != nil {
		d.manager.timer.Stop()
		d.manager.timer = nil
	}
	d.screen.clear()
	d.screen.unqueue()
}

// Wait says for what the command waits until end is called.
func (d *Display) Wait(what string) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := &what
	d.waits = append(d.waits, w)
	d.awake()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.waits = slices.DeleteFunc(d.waits, func(one *string) bool { return one == w })
	}
}

// event prints the line, or logs the message with its attributes. The caller holds the lock.
func (d *Display) event(line, message string, attributes ...any) {
	if now := time.Now(); d.mode == Bars && d.screen.hasBars() {
		d.screen.show(d.rows(now, d.status(now)))
	}
	switch {
	case d.log != nil:
		d.log.Info(message, attributes...)
	case d.mode != Off:
		// If that fails there is nowhere to report it.
		_, _ = fmt.Fprintln(d.screen, printable(line))
	}
	d.last = time.Now()
}

// awake makes the next tick due. The caller holds the lock.
func (d *Display) awake() {
	d.awakeManager()
	if d.timer != nil || d.mode == Off {
		return
	}
	after := silence
	switch quiet := time.Since(d.last); {
	case d.mode == Bars:
		after = refresh
	case quiet > 0 && quiet < silence:
		after -= quiet
	}
	d.timer = time.AfterFunc(after, d.tick)
}

// tick shows what is waited for, as long as something is.
func (d *Display) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer = nil; d.mode == Off {
		return
	}
	now := time.Now()
	status := d.status(now)
	busy := len(status) > 0 || len(d.transfers) > 0
	switch {
	case d.mode == Bars:
		d.screen.show(d.rows(now, status))
	case busy && now.Sub(d.last) >= silence:
		for _, t := range d.transfers {
			status = append(status, t.text(now))
		}
		d.stillWaiting(strings.Join(status, "; "), now.Sub(d.last))
	}
	if busy {
		d.awake()
	}
}

// stillWaiting prints what is waited for. A service, which may wait for months, says the same less and
// less often.
func (d *Display) stillWaiting(text string, quiet time.Duration) {
	if text != d.waiting || !d.service {
		d.waiting, d.pause = text, 0
	}
	if quiet >= d.pause {
		d.pause = min(2*quiet, longSilence)
		d.event(text, "waiting", "for", text)
	}
}

// status says what is waited for, without the transfers. The caller holds the lock.
func (d *Display) status(now time.Time) []string {
	var parts []string
	for _, w := range d.waits {
		parts = append(parts, *w)
	}
	return append(parts, d.pods.texts(now)...)
}

// rows returns a row for each transfer and one for the status. The caller holds the lock.
func (d *Display) rows(now time.Time, status []string) []row {
	rows := make([]row, 0, len(d.transfers)+1)
	for _, t := range d.transfers {
		rows = append(rows, row{title: string(t.Step) + " " + t.Name, done: t.Done, total: t.Total, numbers: t.numbers(now)})
	}
	if len(status) > 0 {
		rows = append(rows, row{title: strings.Join(status, "; ")})
	}
	for i := range rows {
		rows[i].title = printable(rows[i].title)
	}
	return rows
}

// printable makes one line of a text, without what would change the state of a terminal.
func printable(s string) string { return strings.Join(strings.Fields(report.Printable(s)), " ") }

// seconds rounds a duration that is still to come up to full seconds.
func seconds(d time.Duration) time.Duration { return (d + time.Second - 1).Truncate(time.Second) }

// list joins the first texts and counts the others.
func list(all []string, separator string) string {
	const most = 3
	if len(all) <= most {
		return strings.Join(all, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], separator), len(all)-most)
}
