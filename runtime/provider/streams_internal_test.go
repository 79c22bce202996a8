package provider

import (
	"context"
	"io"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"

	"github.com/runonce/runonce/runtime/engine"
)

// terminal has no streams, but a size.
type terminal struct{ resize chan api.TermSize }

func (terminal) Stdin() io.Reader              { return nil }
func (terminal) Stdout() io.WriteCloser        { return nil }
func (terminal) Stderr() io.WriteCloser        { return nil }
func (t terminal) TTY() bool                   { return t.resize != nil }
func (t terminal) Resize() <-chan api.TermSize { return t.resize }

// TestTerminalSize: sizes are passed on as long as the command runs.
func TestTerminalSize(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := terminal{make(chan api.TermSize)}
	s := streams(ctx, a)
	for _, size := range []api.TermSize{{Width: 80, Height: 25}, {Width: 132, Height: 43}} {
		a.resize <- size
		if got := <-s.Resize; got != engine.Size(size) {
			t.Errorf("%v, want %v", got, size)
		}
	}
	// A nil of another type would be written to.
	if s := streams(t.Context(), terminal{}); s.Resize != nil || s.Stdout != nil || s.Stderr != nil || s.Stdin != nil {
		t.Errorf("%+v", s)
	}
}
