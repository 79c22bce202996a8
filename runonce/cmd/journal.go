package cmd

import (
	"context"
	"log/slog"
	"strings"

	"github.com/runonce/runonce/internal/systemd"
)

// maxJournalText is how long the text of an entry may be; the journal ignores entries that are much
// longer.
const maxJournalText = 64 << 10

// newJournalHandler writes log messages to the journal, with their attributes as fields. It refuses a
// journal that does not exist.
func newJournalHandler(socket string, o *slog.HandlerOptions) (slog.Handler, error) {
	if err := systemd.Check(socket); err != nil {
		return nil, err
	}
	conn, err := systemd.Open(socket)
	return &logHandler{level: o.Level, write: func(_ context.Context, r slog.Record, attrs []slog.Attr) error {
		return conn.Send(journalEntry(r, attrs)...)
	}}, err
}

// journalEntry returns the fields of an entry with a text like "POD: MESSAGE: ERROR".
func journalEntry(r slog.Record, attrs []slog.Attr) []systemd.Field {
	text := r.Message
	fields := []systemd.Field{{Name: "PRIORITY", Value: priority(r.Level)}, {Name: "SYSLOG_IDENTIFIER", Value: "runonce"}}
	for _, a := range attrs {
		value := a.Value.Resolve().String()
		switch {
		case value == "":
		case a.Key == "pod":
			text = value + ": " + text
			namespace, name, _ := strings.Cut(value, "/")
			fields = append(fields, systemd.Field{Name: "POD_NAMESPACE", Value: namespace}, systemd.Field{Name: "POD_NAME", Value: name})
		case a.Key == "message":
			text += ": " + value
		case a.Key == "error":
			text += ": " + value
			fields = append(fields, systemd.Field{Name: "ERROR", Value: value})
		default:
			fields = append(fields, systemd.Field{Name: fieldName(a.Key), Value: value})
		}
	}
	text = text[:min(len(text), maxJournalText)]
	return append(fields, systemd.Field{Name: "MESSAGE", Value: text})
}

func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return systemd.PriorityError
	case level >= slog.LevelWarn:
		return systemd.PriorityWarning
	case level >= slog.LevelInfo:
		return systemd.PriorityInfo
	}
	return systemd.PriorityDebug
}

// fieldName returns the name of a field for an attribute. Those of containers are the same as in the
// entries of their logs.
func fieldName(key string) string {
	if key == "container" {
		return "CONTAINER_NAME"
	}
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(key))
}
