package cmd

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"unicode"
)

// textHandler writes warnings and errors for people, in the form of those of validate, and
// everything below as slog.TextHandler does.
type textHandler struct {
	slog.Handler
	w     io.Writer
	attrs []slog.Attr
}

// newTextHandler needs a writer that is safe for concurrent use.
func newTextHandler(w io.Writer, o *slog.HandlerOptions) slog.Handler {
	return &textHandler{Handler: slog.NewTextHandler(w, o), w: w}
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &textHandler{Handler: h.Handler.WithAttrs(attrs), w: h.w, attrs: slices.Concat(h.attrs, attrs)}
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	return &textHandler{Handler: h.Handler.WithGroup(name), w: h.w, attrs: h.attrs}
}

// Handle writes "warning: POD: MESSAGE (KEY VALUE, ...): ERROR".
func (h *textHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
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
	_, err := io.WriteString(h.w, oneLine(line+problem)+"\n")
	return err
}

// oneLine replaces what would break a line or change the state of a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, strings.ReplaceAll(s, "\n", "; "))
}
