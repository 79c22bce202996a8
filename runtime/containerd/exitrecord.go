package containerd

import (
	"time"

	"github.com/runonce/runonce/runtime/shim/exitrecord"
)

// updateRecord completes a container's exit record, which a third-party shim does not write, and
// returns the result. A start and an exit at the same time do not undo each other: once the
// exit is recorded, it stays.
func (e *Engine) updateRecord(path string, news exitrecord.Record) (exitrecord.Record, error) {
	defer e.recordLocks.Lock(path)()
	r, err := exitrecord.Read(path)
	switch {
	case err != nil:
		// No record yet, or an unreadable one.
	case r.Ended():
		return r, nil
	case !r.StartedAt.IsZero():
		news.StartedAt = r.StartedAt
	}
	return news, news.Write(path)
}

// startTime returns when the container was started: what its record says, as every other process
// reads it, or else the time that is observed here.
func (e *Engine) startTime(id string, observed time.Time) time.Time {
	r, err := exitrecord.Read(e.recordPath(id))
	if err != nil || r.StartedAt.IsZero() {
		return observed
	}
	return r.StartedAt
}
