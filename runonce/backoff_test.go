package runonce

import (
	"math"
	"testing"
	"time"
)

// TestJitter: a delay is never shorter, and never longer by more than its part.
func TestJitter(t *testing.T) {
	t.Parallel()
	differ := map[time.Duration]bool{}
	for range 100 {
		d := Backoff{Jitter: 0.1}.spread(10 * time.Second)
		if d < 10*time.Second || d > 11*time.Second {
			t.Errorf("%s", d)
		}
		differ[d] = true
	}
	if len(differ) < 2 {
		t.Error("all delays are the same")
	}
	for _, b := range []Backoff{{}, {Jitter: 0.1}} {
		if d := b.spread(math.MaxInt64); d != math.MaxInt64 {
			t.Errorf("%s", d)
		}
	}
	if d := (Backoff{}).spread(time.Second); d != time.Second {
		t.Errorf("%s", d)
	}
}
