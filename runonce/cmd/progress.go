package cmd

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runtime/engine"
)

const (
	// silence is how long nothing is printed before a line says what is waited for.
	silence = 10 * time.Second
	// refresh is how often the bars on a terminal change. It is also the time before the first
	// ones: a short command has none.
	refresh = 250 * time.Millisecond
)

// How a display shows what happens.
type displayMode int

const (
	modeOff   displayMode = iota
	modeLines             // a line for each event, and one after ten seconds without one
	modeBars              // lines, with bars below them
)

// display shows on standard error what a command does and what it waits for. Until configure is
// called it shows nothing. It is safe for concurrent use.
type display struct {
	screen *screen

	mu        sync.Mutex
	mode      displayMode
	log       *slog.Logger // gets the events instead of the screen, unless it is nil
	json      bool         // the log is JSON, and so nothing else is printed
	timer     *time.Timer  // for the next tick; nil while none is due
	last      time.Time    // of the last line
	pods      podStates
	transfers []*transfer // that have not ended, oldest first
	waits     []*string   // for what else the command waits, oldest first
	effect    interruptEffect
}

func newDisplay(out io.Writer) *display { return &display{screen: &screen{out: out}} }

// configureDisplay turns the display on, unless --quiet is set. With --log-format json, and at
// the log levels info and debug, events are log messages instead of lines.
func (p *program) configureDisplay(c *cli.Context) {
	d := p.display
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.json || p.log.Enabled(c.Context, slog.LevelInfo) {
		d.log, d.json = p.log, p.json
	}
	switch {
	case c.Bool("quiet"):
	case p.io.StderrTerminal && !p.dumbTerminal() && !p.json:
		d.mode = modeBars
	default:
		d.mode = modeLines
	}
}

// dumbTerminal says whether the terminal has neither colors nor a cursor that moves.
func (p *program) dumbTerminal() bool { return p.io.Getenv != nil && p.io.Getenv("TERM") == "dumb" }

// onTransfer returns the callback for the engine, nil if nobody wants to know.
func (p *program) onTransfer() func(engine.Transfer) {
	p.display.mu.Lock()
	defer p.display.mu.Unlock()
	if p.display.mode == modeOff && p.display.log == nil {
		return nil
	}
	return p.display.transfer
}

// close ends the display: nothing more is shown.
func (d *display) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mode, d.log = modeOff, nil
	if d.timer != nil {
		d.timer.Stop()
	}
	d.screen.clear()
}

// wait says for what the command waits until end is called.
func (d *display) wait(what string) (end func()) {
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
func (d *display) event(line, message string, attributes ...any) {
	if now := time.Now(); d.mode == modeBars && d.screen.hasBars() {
		d.screen.show(d.rows(now, d.status(now)))
	}
	switch {
	case d.log != nil:
		d.log.Info(message, attributes...)
	case d.mode != modeOff:
		// If that fails there is nowhere to report it.
		_, _ = fmt.Fprintln(d.screen, printable(line))
	}
	d.last = time.Now()
}

// awake makes the next tick due. The caller holds the lock.
func (d *display) awake() {
	if d.timer != nil || d.mode == modeOff {
		return
	}
	after := silence
	switch quiet := time.Since(d.last); {
	case d.mode == modeBars:
		after = refresh
	case quiet > 0 && quiet < silence:
		after -= quiet
	}
	d.timer = time.AfterFunc(after, d.tick)
}

// tick shows what is waited for, as long as something is.
func (d *display) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer = nil; d.mode == modeOff {
		return
	}
	now := time.Now()
	status := d.status(now)
	busy := len(status) > 0 || len(d.transfers) > 0
	switch {
	case d.mode == modeBars:
		d.screen.show(d.rows(now, status))
	case busy && now.Sub(d.last) >= silence:
		for _, t := range d.transfers {
			status = append(status, t.text(now))
		}
		text := strings.Join(status, "; ")
		d.event(text, "waiting", "for", text)
	}
	if busy {
		d.awake()
	}
}

// status says what is waited for, without the transfers. The caller holds the lock.
func (d *display) status(now time.Time) []string {
	var parts []string
	for _, w := range d.waits {
		parts = append(parts, *w)
	}
	return append(parts, d.pods.texts(now)...)
}

// rows returns a row for each transfer and one for the status. The caller holds the lock.
func (d *display) rows(now time.Time, status []string) []row {
	rows := make([]row, 0, len(d.transfers)+1)
	for _, t := range d.transfers {
		rows = append(rows, row{key: t.Name, title: string(t.Step) + " " + t.Name, done: t.Done, total: t.Total, numbers: t.numbers(now)})
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
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

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
