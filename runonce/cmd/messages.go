package cmd

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/runonce/runonce/runonce/report"
)

// logHandler passes log messages on with all their attributes. There are no groups.
type logHandler struct {
	level slog.Leveler
	attrs []slog.Attr
	write func(ctx context.Context, r slog.Record, attrs []slog.Attr) error
}

// Enabled says whether messages of the level are written.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs returns a handler that adds the attributes.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{level: h.level, attrs: slices.Concat(h.attrs, attrs), write: h.write}
}

// WithGroup returns the handler.
func (h *logHandler) WithGroup(string) slog.Handler { return h }

// Handle writes the message.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	return h.write(ctx, r, attrs)
}

// newTextHandler writes warnings and errors for people, in the form of those of validate, and
// everything below as slog.TextHandler does. It needs a writer that is safe for concurrent use.
func newTextHandler(w io.Writer, o *slog.HandlerOptions) slog.Handler {
	plain := slog.NewTextHandler(w, o)
	return &logHandler{level: o.Level, write: func(ctx context.Context, r slog.Record, attrs []slog.Attr) error {
		if r.Level < slog.LevelWarn {
			all := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
			all.AddAttrs(attrs...)
			return plain.Handle(ctx, all)
		}
		_, err := io.WriteString(w, textOf(r, attrs)+"\n")
		return err
	}}
}

// textOf returns "warning: POD: MESSAGE (KEY VALUE, ...): ERROR".
func textOf(r slog.Record, attrs []slog.Attr) string {
	var pod, problem string
	var others []string
	for _, a := range attrs {
		switch text := a.Value.Resolve().String(); a.Key {
		case "pod":
			pod = text + ": "
		case "error":
			problem = ": " + text
		default:
			others = append(others, a.Key+" "+text)
		}
	}
	line := "warning: "
	if r.Level >= slog.LevelError {
		line = "error: "
	}
	line += pod + r.Message
	if len(others) > 0 {
		line += " (" + strings.Join(others, ", ") + ")"
	}
	return report.Printable(strings.ReplaceAll(line+problem, "\n", "; "))
}
