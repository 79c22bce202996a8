package runonce

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/runonce/runonce/internal/failure"
)

// Backoff is an exponential retry schedule.
type Backoff struct {
	Delay   time.Duration // before the first retry
	Factor  float64       // each delay is this many times the one before; at least 1
	Retries int           // at most
	// Jitter lengthens each delay at random by up to this part of it, so that many machines do
	// not ask a registry again at the same time.
	Jitter float64
}

// DefaultBackoff returns the schedule of the kubelet's run-once mode
// (pkg/kubelet/runonce.go of Kubernetes 1.30): 1 s, doubled each time, 10 retries.
func DefaultBackoff() Backoff {
	return Backoff{Delay: time.Second, Factor: 2, Retries: 10}
}

// Validate returns the error in the schedule.
func (b Backoff) Validate() error {
	if b != (Backoff{}) && (!(b.Factor >= 1) || math.IsInf(b.Factor, 0)) {
		return fmt.Errorf("--retry-factor %g: must be a number of at least 1", b.Factor)
	}
	return nil
}

// At returns the delay before the n-th retry, from 0, and whether there is such a retry. A
// delay that overflows time.Duration is cut to its maximum.
func (b Backoff) At(n int) (time.Duration, bool) {
	d := float64(b.Delay)
	for range n {
		if d *= b.Factor; d >= math.MaxInt64 {
			return math.MaxInt64, n < b.Retries
		}
	}
	return time.Duration(d), n < b.Retries
}

// Next returns how long to wait before retry n, which follows the error, false when there is none.
func (b Backoff) Next(n int, err error) (time.Duration, bool) {
	delay, more := b.At(n)
	if limit, limited := failure.Retries(err); limited && n >= limit {
		more = false
	}
	return b.spread(max(delay, failure.RetryDelay(err))), more
}

// spread adds the jitter to a delay.
func (b Backoff) spread(d time.Duration) time.Duration {
	extra := b.Jitter * rand.Float64() * float64(d)
	if float64(d)+extra >= math.MaxInt64 {
		return d
	}
	return d + time.Duration(extra)
}
