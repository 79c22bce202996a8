package progress

import (
	"io"
	"sync"
)

// outboxLimit is how many bytes may wait to be written when more of a log is accepted.
const outboxLimit = 64 << 10

// outbox writes to a reader that may be slow without blocking those who write to it. After an error it drops what is
// written, as there is nobody left to read it.
type outbox struct {
	out io.Writer

	mu      sync.Mutex
	changed sync.Cond // of what follows
	waiting []byte
	writing bool // some bytes are being written
	failed  bool
}

func newOutbox(out io.Writer) *outbox {
	q := &outbox{out: out}
	q.changed.L = &q.mu
	return q
}

// Write never blocks.
func (q *outbox) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed {
		return len(p), nil
	}
	q.waiting = append(q.waiting, p...)
	if !q.writing {
		q.writing = true
		go q.drain()
	}
	return len(p), nil
}

// drain writes until nothing waits.
func (q *outbox) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		all := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		_, err := q.out.Write(all)
		q.mu.Lock()
		if err != nil {
			q.failed, q.waiting = true, nil
		}
		q.changed.Broadcast()
	}
	q.writing = false
	q.changed.Broadcast()
}

// await waits until fewer bytes than that wait; until all are written for 0.
func (q *outbox) await(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > bytes || bytes == 0 && q.writing {
		q.changed.Wait()
	}
}

// Logs returns a writer for lines of logs, which stay above the bars. However slow the reader of standard error is, only
// this writer waits for it from now on, until Close is called, and never an event.
func (d *Display) Logs() io.Writer {
	d.screen.mu.Lock()
	defer d.screen.mu.Unlock()
	if d.screen.outbox == nil {
		d.screen.outbox = newOutbox(d.screen.out)
	}
	return logLines{d.screen, d.screen.outbox}
}

// Flush waits until all lines are written.
func (d *Display) Flush() { d.screen.flush() }

type logLines struct {
	*screen
	outbox *outbox
}

func (l logLines) Write(p []byte) (int, error) {
	l.outbox.await(outboxLimit)
	return l.screen.Write(p)
}

// flush waits until all is written that was queued.
func (s *screen) flush() {
	s.mu.Lock()
	q := s.outbox
	s.mu.Unlock()
	if q != nil {
		q.await(0)
	}
}

// unqueue writes what was queued, and what follows at once.
func (s *screen) unqueue() {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outbox = nil
}
