package containerd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	// beatInterval is how often a daemon is asked whether it still responds.
	beatInterval = 10 * time.Second
	// beatTimeout is how long it may take to respond, which is long for a machine that is busy.
	beatTimeout = 20 * time.Second
)

// heartbeat interrupts the calls to a daemon that does not respond, for example because a signal
// has stopped it: they would hang for ever. gRPC's keepalive cannot be used, since a daemon closes
// connections whose clients ping it more often than every five minutes.
type heartbeat struct {
	ping func(ctx context.Context) error
	dead error // the cause of an interruption
	log  *slog.Logger

	mu    sync.Mutex
	calls map[*call]struct{} // in progress
}

type call struct {
	begin     time.Time
	interrupt context.CancelCauseFunc
}

// guard returns a context for a call that may be interrupted. end has to be called after it.
func (h *heartbeat) guard(ctx context.Context) (guarded context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{time.Now(), cancel}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls == nil {
		h.calls = map[*call]struct{}{}
	}
	h.calls[c] = struct{}{}
	return ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.calls, c)
		cancel(nil)
	}
}

// interrupted says whether the context of guard was interrupted.
func (h *heartbeat) interrupted(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && errors.Is(cause, h.dead)
}

// run asks the daemon again and again until ctx is done.
func (h *heartbeat) run(ctx context.Context) {
	dead := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(beatInterval):
		}
		begin := time.Now()
		limited, cancel := context.WithTimeout(ctx, beatTimeout)
		_ = h.ping(limited) // an error is a response too
		late := limited.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return
		}
		if late {
			h.interrupt(begin)
		}
		switch {
		case late && !dead:
			h.log.Warn(h.dead.Error())
		case dead && !late:
			h.log.Info("containerd responds again")
		}
		dead = late
	}
}

// interrupt interrupts the calls that began before the given time.
func (h *heartbeat) interrupt(before time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.calls {
		if c.begin.Before(before) {
			c.interrupt(h.dead)
		}
	}
}
