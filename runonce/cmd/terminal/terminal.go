// Package terminal is the terminal of this process, on which a command in a container can work.
package terminal

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/runonce/runonce/runtime/engine"
)

// Terminal is a terminal.
type Terminal struct{ file *os.File }

// Is reports whether the file is a terminal.
func Is(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Open returns the terminal that the file is, nil if it is none.
func Open(f *os.File) *Terminal {
	if !Is(f) {
		return nil
	}
	return &Terminal{f}
}

// Raw has the terminal pass everything on as it is typed, until restore is called, which may be called again.
func (t *Terminal) Raw() (restore func(), err error) {
	before, err := term.MakeRaw(int(t.file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("setting up the terminal: %w", err)
	}
	return sync.OnceFunc(func() { _ = term.Restore(int(t.file.Fd()), before) }), nil
}

// Size returns the present size of the terminal, zero if that is not known.
func (t *Terminal) Size() engine.Size {
	width, height, err := term.GetSize(int(t.file.Fd()))
	if err != nil {
		return engine.Size{}
	}
	return engine.Size{Width: uint16(width), Height: uint16(height)}
}

// Sizes returns the sizes of the terminal, the present one first, until ctx is done. Who does not read them all gets the
// last one.
func (t *Terminal) Sizes(ctx context.Context) <-chan engine.Size {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	sizes := make(chan engine.Size)
	go func() {
		defer signal.Stop(changes)
		for {
			if size := t.Size(); size != (engine.Size{}) {
				select {
				case sizes <- size:
				case <-changes:
					continue
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-changes:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
