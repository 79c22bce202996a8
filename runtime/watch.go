package runtime

import (
	"context"
	"sync"
)

// watch fans the engine's events out to those who wait for a change of one pod. The zero
// value is ready for use.
type watch struct {
	mu   sync.Mutex
	subs map[chan struct{}]string // channel to pod UID
}

// notify wakes the waiters of the pod, or all of them when the pod is not known.
func (w *watch) notify(podUID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch, uid := range w.subs {
		if podUID != "" && uid != podUID {
			continue
		}
		select {
		case ch <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

func (w *watch) subscribe(ctx context.Context, podUID string) <-chan struct{} {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs == nil {
		w.subs = map[chan struct{}]string{}
	}
	w.subs[ch] = podUID
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs, ch)
		close(ch)
	})
	return ch
}
