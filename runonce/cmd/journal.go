package cmd

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/internal/journal"
)

// maxJournalText is how long the text of an entry may be; the journal ignores entries that are much
// longer.
const maxJournalText = 64 << 10

// journalHandler writes log messages to the journal, with their attributes as fields.
type journalHandler struct {
	level slog.Leveler
	conn  *journal.Conn
	attrs []slog.Attr
}

// newJournalHandler refuses a journal that does not exist.
func newJournalHandler(socket string, o *slog.HandlerOptions) (slog.Handler, error) {
	if err := journal.Check(socket); err != nil {
		return nil, err
	}
	conn, err := journal.Open(socket)
	return &journalHandler{level: o.Level, conn: conn}, err
}

// Enabled says whether messages of the level are written.
func (h *journalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs returns a handler that adds the attributes.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journalHandler{level: h.level, conn: h.conn, attrs: slices.Concat(h.attrs, attrs)}
}

// WithGroup returns the handler: fields have no groups.
func (h *journalHandler) WithGroup(string) slog.Handler { return h }

// Handle writes an entry with a text like "POD: MESSAGE: ERROR".
func (h *journalHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	text := r.Message
	fields := []journal.Field{{Name: "PRIORITY", Value: priority(r.Level)}, {Name: "SYSLOG_IDENTIFIER", Value: "runonce"}}
	for _, a := range attrs {
		value := a.Value.Resolve().String()
		switch {
		case value == "":
		case a.Key == "pod":
			text = value + ": " + text
			namespace, name, _ := strings.Cut(value, "/")
			fields = append(fields, journal.Field{Name: "POD_NAMESPACE", Value: namespace}, journal.Field{Name: "POD_NAME", Value: name})
		case a.Key == "message":
			text += ": " + value
		case a.Key == "error":
			text += ": " + value
			fields = append(fields, journal.Field{Name: "ERROR", Value: value})
		default:
			fields = append(fields, journal.Field{Name: fieldName(a.Key), Value: value})
		}
	}
	text = text[:min(len(text), maxJournalText)]
	return h.conn.Send(append(fields, journal.Field{Name: "MESSAGE", Value: text})...)
}

func priority(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return journal.PriorityError
	case level >= slog.LevelWarn:
		return journal.PriorityWarning
	case level >= slog.LevelInfo:
		return journal.PriorityInfo
	}
	return journal.PriorityDebug
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

// containerLogsFlag says where the output of containers is written.
func containerLogsFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "container-logs", Category: categoryRun, Value: "files",
		Usage: "log containers to `PLACE`: files, or journal for both",
	}
}

// containerJournal reads containerLogsFlag and returns the socket of the journal, or "".
func (p *program) containerJournal(c *cli.Context) (string, error) {
	switch place := c.String("container-logs"); place {
	case "", "files":
		return "", nil
	case "journal":
		if p.cluster != nil {
			return "", usagef("--container-logs journal: the containers of a cluster log there")
		}
		if err := journal.Check(p.io.Journal); err != nil {
			return "", usagef("--container-logs journal: %w", err)
		}
		return p.io.Journal, nil
	default:
		return "", usagef("--container-logs %q: must be files or journal", place)
	}
}
