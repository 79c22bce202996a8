package containerd

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeartbeat: a call to a daemon that does not respond is interrupted, but no other call.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		stopped := func() bool { s := time.Since(begin); return s >= time.Minute && s < 2*time.Minute }
		h := &heartbeat{dead: errors.New("it does not respond"), log: slog.New(slog.DiscardHandler), ping: func(ctx context.Context) error {
			if stopped() {
				<-ctx.Done()
			}
			return errors.New("a daemon of version 0")
		}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.run(ctx)
		// call is a call that takes a while. It returns when and why it was interrupted.
		call := func(takes time.Duration) (time.Duration, error) {
			ctx, end := h.guard(t.Context())
			defer end()
			select {
			case <-time.After(takes):
			case <-ctx.Done():
			}
			return time.Since(begin), context.Cause(ctx)
		}
		if at, err := call(55 * time.Second); err != nil || at != 55*time.Second {
			t.Errorf("while it responds: %v after %s", err, at)
		}
		if at, err := call(time.Hour); !errors.Is(err, h.dead) || at != 80*time.Second {
			t.Errorf("while it does not: %v after %s, want 1m20s", err, at)
		}
		time.Sleep(2*time.Minute - time.Since(begin) + time.Second)
		if at, err := call(time.Hour); err != nil || at != time.Hour+2*time.Minute+time.Second {
			t.Errorf("once it responds again: %v after %s", err, at)
		}
	})
}
