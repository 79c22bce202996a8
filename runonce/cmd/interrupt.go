package cmd

import (
	"context"
	"syscall"
	"time"

	"github.com/runonce/runonce/runonce/report"
)

// sameSignal is how long after the first signal others count as the same one: timeout(1) and
// others signal the process and then its group.
const sameSignal = 200 * time.Millisecond

// watch cancels the context on the first signal and exits on the second, until done is closed.
// SIGHUP is never the second one: it comes by itself when a terminal is closed. A command that reads
// its input again gets it instead.
func (p *program) watch(cancel context.CancelCauseFunc, done <-chan struct{}) {
	var first time.Time
	for {
		select {
		case got := <-p.io.Signals:
			sig, ok := got.(syscall.Signal)
			switch {
			case !ok:
			case sig == syscall.SIGHUP && p.reloads.Load():
				select {
				case p.hangups <- struct{}{}:
				default: // one is pending already
				}
			case first.IsZero():
				first = time.Now()
				p.display.Interrupted()
				cancel(Interrupt{sig})
			case sig == syscall.SIGHUP || time.Since(first) < sameSignal:
			default:
				p.display.Exiting()
				p.restoreTerminal()
				p.io.Exit(report.ExitSignal(sig))
				return
			}
		case <-done:
			return
		}
	}
}
