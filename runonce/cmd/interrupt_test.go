package cmd

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runonce/cmd/progress"
)

// TestWatch: the first signal cancels, and a second one ends the process, unless it comes with
// the first or is SIGHUP.
func TestWatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		signals []syscall.Signal
		pause   time.Duration
		want    []int
	}{
		{[]syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, time.Second, []int{143}},
		{[]syscall.Signal{syscall.SIGINT, syscall.SIGINT}, time.Millisecond, nil},
		{[]syscall.Signal{syscall.SIGHUP, syscall.SIGHUP}, time.Second, nil},
		{[]syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT}, time.Second, []int{130}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			signals, done := make(chan os.Signal), make(chan struct{})
			var codes []int
			p := &program{console: &console{display: progress.New(io.Discard, nil), io: IO{Signals: signals, Exit: func(code int) { codes = append(codes, code) }}}}
			go p.watch(cancel, done)
			for _, sig := range tc.signals {
				signals <- sig
				time.Sleep(tc.pause)
			}
			close(done)
			synctest.Wait()
			if cause := context.Cause(ctx); !errors.Is(cause, Interrupt{tc.signals[0]}) {
				t.Errorf("%v: cause %v", tc.signals, cause)
			}
			if diff := cmp.Diff(tc.want, codes); diff != "" {
				t.Errorf("%v: %s", tc.signals, diff)
			}
		})
	}
}
