package containerd

import (
	"testing"
	"time"
)

func TestReached(t *testing.T) {
	t.Parallel()
	const limit = 30 * time.Second
	for elapsed, want := range map[time.Duration]bool{
		time.Second: false, 28 * time.Second: false, limit - time.Millisecond: true, limit: true, limit + time.Second: true,
	} {
		if got := reached(limit, elapsed); got != want {
			t.Errorf("after %s: %t", elapsed, got)
		}
	}
}
