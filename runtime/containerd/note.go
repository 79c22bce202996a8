package containerd

import "github.com/runonce/runonce/runtime/shim/handoff"

// note adds to a container's record what a foreign shim does not write there, and returns
// the whole. A start and an exit that come at the same time do not undo each other: once
// the exit is recorded, it stays.
func (e *Engine) note(path string, news handoff.Record) (handoff.Record, error) {
	defer e.notes.Lock(path)()
	r, err := handoff.ReadRecord(path)
	switch {
	case err != nil:
		// No record yet, or none that can be read.
	case r.Ended():
		return r, nil
	case !r.StartedAt.IsZero():
		news.StartedAt = r.StartedAt
	}
	return news, news.Write(path)
}
