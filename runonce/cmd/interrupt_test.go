package cmd

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestInterruptNotice: the first signal says what it and a second one do, which is the truth.
func TestInterruptNotice(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		script func(e *events)
		want   string
		left   string
	}{
		{"before anything", func(*events) {}, "", "runonce: interrupted again: exiting at once"},
		{
			"a run", func(e *events) {
				e.onInterrupt(effectReport)
				e.on("a", "Starting", "", "")
			}, "interrupted: reporting the pods, which are left as they are; a second signal exits at once, without a report",
			`runonce: interrupted again: exiting at once, pods are left as they are: default/a; "runonce ps" shows them, "runonce down" removes them`,
		},
		{
			"a run with --rm", func(e *events) {
				e.onInterrupt(effectRemove)
				e.on("a", "Starting", "", "")
				e.on("b", "Starting", "", "")
			}, "interrupted: removing the pods of this run, which takes up to 30s; a second signal exits at once and leaves them as they are",
			`runonce: interrupted again: exiting at once, pods are left as they are: default/a, default/b; "runonce ps" shows them, "runonce down" removes them`,
		},
		{
			"a run with --rm that removes already", func(e *events) {
				e.onInterrupt(effectRemove)
				e.on("a", "Starting", "", "")
				e.on("b", "Starting", "", "")
				e.on("a", "Stopping", "", "")
				e.on("b", "Stopping", "", "")
				time.Sleep(9500 * time.Millisecond)
				e.on("b", "Stopped", "", "")
			}, "interrupted: removing the pods of this run, which takes up to 21s; a second signal exits at once and leaves them as they are",
			`runonce: interrupted again: exiting at once, pods are left as they are: default/a; "runonce ps" shows them, "runonce down" removes them`,
		},
		{
			"a run with --rm that has started nothing", func(e *events) { e.onInterrupt(effectRemove) },
			"interrupted: reporting the pods, which are left as they are; a second signal exits at once, without a report",
			"runonce: interrupted again: exiting at once",
		},
		{
			"down", func(e *events) {
				e.onInterrupt(effectAbandon)
				e.on("a", "Stopping", "", "")
			}, `interrupted: not waiting for the pods that are still stopping, "runonce down" removes them; a second signal exits at once`,
			`runonce: interrupted again: exiting at once, pods are left as they are: default/a; "runonce ps" shows them, "runonce down" removes them`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := tc.left + "\n"
			if tc.want != "" {
				want = tc.want + "\n" + want
			}
			got := shown(t, modeLines, nil, func(e *events) {
				tc.script(e)
				e.interrupted()
				e.exiting()
			})
			if !strings.HasSuffix("\n"+got, "\n"+want) {
				t.Errorf("got:\n%s\nwant at the end:\n%s", got, want)
			}
		})
	}
}

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
			p := &program{display: newDisplay(io.Discard), io: IO{Signals: signals, Exit: func(code int) { codes = append(codes, code) }}}
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
