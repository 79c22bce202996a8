package containerd

import (
	"time"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/shim/protocol"
)

// updateRecord completes a container's exit record, which a third-party shim does not write, and
// returns the result. A start and an exit at the same time do not undo each other: once the
// exit is recorded, it stays.
func (e *Engine) updateRecord(path string, news protocol.Record) (protocol.Record, error) {
	e.recordLocks.Lock(path)
	defer func() { _ = e.recordLocks.Unlock(path) }()
	r, err := protocol.Read(path)
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

// started notes that the container runs, which the call to start it and an event tell: since when
// its record says, as every other process reads it, or else since the time that is observed here.
func (e *Engine) started(id string, observed time.Time, pid int) {
	if known, _, _ := e.containers.get(id); known.State != engine.StateCreated {
		return
	}
	if r, err := protocol.Read(e.recordPath(id)); err == nil && !r.StartedAt.IsZero() {
		observed = r.StartedAt
	}
	e.containers.started(id, observed, pid)
}
