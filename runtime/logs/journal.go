package logs

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/systemd"
)

// journalPause is how long nothing is sent to a journal that reads nothing: the container must not
// wait for it.
const journalPause = 10 * time.Second

// ToJournal has the lines sent to the journal at the socket as well. What the journal does not take
// is only in the file.
func (w *Writer) ToJournal(socket string) (err error) {
	w.journal, err = systemd.Open(socket)
	return err
}

// journalSender returns the function that sends a line of the stream, or a part of one.
func (w *Writer) journalSender(stream string) func(tag byte, line []byte) {
	if w.journal == nil {
		return nil
	}
	fields := systemd.Encode(nil, journalFields(w.path, stream)...)
	var paused time.Time
	return func(tag byte, line []byte) {
		if w.now().Before(paused) {
			return
		}
		entry := systemd.Encode(fields[:len(fields):len(fields)], systemd.Field{Name: "MESSAGE", Value: string(line)})
		if tag == 'P' {
			entry = systemd.Encode(entry, systemd.Field{Name: "CONTAINER_PARTIAL_MESSAGE", Value: "true"})
		}
		if w.journal.SendEncoded(entry) != nil {
			paused = w.now().Add(journalPause)
		}
	}
}

// journalFields returns what the path of a log says about its lines.
func journalFields(path, stream string) []systemd.Field {
	dir := filepath.Dir(path)
	container := filepath.Base(dir)
	var pod [3]string
	copy(pod[:], strings.SplitN(filepath.Base(filepath.Dir(dir)), "_", 3))
	priority := systemd.PriorityInfo
	if stream == "stderr" {
		priority = systemd.PriorityError
	}
	return []systemd.Field{
		{Name: "PRIORITY", Value: priority},
		{Name: "SYSLOG_IDENTIFIER", Value: pod[1] + "/" + container},
		{Name: "POD_NAMESPACE", Value: pod[0]},
		{Name: "POD_NAME", Value: pod[1]},
		{Name: "POD_UID", Value: pod[2]},
		{Name: "CONTAINER_NAME", Value: container},
		{Name: "CONTAINER_STREAM", Value: stream},
	}
}
