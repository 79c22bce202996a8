package progress

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestExitingAfterClose: the second signal may come while the result is written.
func TestExitingAfterClose(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := New(io.Discard, nil)
	d.Configure(Off, slog.New(slog.NewJSONHandler(&out, nil)), true)
	d.Close()
	d.Exiting()
	if !strings.Contains(out.String(), `"msg":"interrupted again: exiting at once"`) {
		t.Errorf("%s", &out)
	}
}

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
				e.OnInterrupt(EffectReport)
				e.on("a", "Starting", "", "")
			}, "interrupted: reporting the pods, which are left as they are; a second signal exits at once, without a report",
			`runonce: interrupted again: exiting at once, pods are left as they are: default/a; "runonce ps" shows them, "runonce down" removes them`,
		},
		{
			"a run with --rm", func(e *events) {
				e.OnInterrupt(EffectRemove)
				e.on("a", "Starting", "", "")
				e.on("b", "Starting", "", "")
			}, "interrupted: removing the pods of this run, which takes up to 30s; a second signal exits at once, without waiting for them",
			`runonce: interrupted again: exiting at once, pods are left as they are: default/a, default/b; "runonce ps" shows them, "runonce down" removes them`,
		},
		{
			"a run with --rm that removes already", func(e *events) {
				e.OnInterrupt(EffectRemove)
				e.on("a", "Starting", "", "")
				e.on("b", "Starting", "", "")
				e.on("a", "Stopping", "", "")
				e.on("b", "Stopping", "", "")
				time.Sleep(9500 * time.Millisecond)
				e.on("b", "Stopped", "", "")
			}, "interrupted: removing the pods of this run, which takes up to 21s; a second signal exits at once, without waiting for them",
			`runonce: interrupted again: exiting at once, pods were told to stop: default/a; "runonce ps" shows them, "runonce down" removes them`,
		},
		{
			"a run with --rm on a machine where others remove its pods", func(e *events) {
				e.OnInterrupt(EffectHandOver)
				e.on("a", "Starting", "", "")
				e.on("b", "Starting", "", "")
				e.on("b", "Stopping", "", "")
			}, "interrupted: removing the pods of this run, which takes up to 30s; a second signal exits at once, without waiting for them",
			`runonce: interrupted again: exiting at once, pods are removed in the background: default/a, default/b; "runonce ps" shows those that are left`,
		},
		{
			"a run with --rm that has started nothing", func(e *events) { e.OnInterrupt(EffectRemove) },
			"interrupted: reporting the pods, which are left as they are; a second signal exits at once, without a report",
			"runonce: interrupted again: exiting at once",
		},
		{
			"watch", func(e *events) {
				e.OnInterrupt(EffectLeave)
				e.on("a", "Running", "", "")
			}, "interrupted: the pods are left as they are; a second signal exits at once", "runonce: interrupted again: exiting at once",
		},
		{
			"watch --stop-pods, with a pod of an earlier run", func(e *events) {
				e.OnInterrupt(EffectStop)
				e.on("a", "Running", "", "")
			}, "interrupted: stopping the pods, which takes up to 30s; a second signal exits at once, without waiting for them",
			"runonce: interrupted again: exiting at once",
		},
		{
			"down", func(e *events) {
				e.OnInterrupt(EffectAbandon)
				e.on("a", "Stopping", "", "")
			}, `interrupted: not waiting for the pods that are still stopping, "runonce down" removes them; a second signal exits at once`,
			`runonce: interrupted again: exiting at once, pods were told to stop: default/a; "runonce ps" shows them, "runonce down" removes them`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := tc.left + "\n"
			if tc.want != "" {
				want = tc.want + "\n" + want
			}
			got := shown(t, Lines, nil, func(e *events) {
				tc.script(e)
				e.Interrupted()
				e.Exiting()
			})
			if !strings.HasSuffix("\n"+got, "\n"+want) {
				t.Errorf("got:\n%s\nwant at the end:\n%s", got, want)
			}
		})
	}
}
