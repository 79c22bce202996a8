package cmd

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestTextHandler: a person reads warnings in plain words, and what is logged for debugging with
// its time.
func TestTextHandler(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		log  func(*slog.Logger)
		want string
	}{
		{func(l *slog.Logger) { l.Warn("a.yaml:3: kind: unknown") }, "warning: a.yaml:3: kind: unknown\n"},
		{func(l *slog.Logger) { l.Error("closing", "error", errors.New("busy\nstill busy")) }, "error: closing: busy; still busy\n"},
		{
			func(l *slog.Logger) {
				l.With("pod", "default/web").Warn("preStop hook failed", "error", errors.New("no \x1b[31mshell"), "container", "app", "try", 2)
			},
			"warning: default/web: preStop hook failed (container app, try 2): no \ufffd[31mshell\n",
		},
		{func(l *slog.Logger) { l.Debug("not shown") }, ""},
	} {
		var b bytes.Buffer
		c.log(slog.New(newTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo})))
		if b.String() != c.want {
			t.Errorf("got %q, want %q", &b, c.want)
		}
	}
	var b bytes.Buffer
	slog.New(newTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo})).With("a", 1).Info("imported", "b", 2)
	if got := b.String(); !strings.HasPrefix(got, "time=") || !strings.HasSuffix(got, " level=INFO msg=imported a=1 b=2\n") {
		t.Errorf("got %q", got)
	}
}
