package runonce

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
)

// Backoff is a schedule of retries that wait ever longer.
type Backoff struct {
	Delay   time.Duration // before the first retry
	Factor  float64       // by which each delay is longer than the one before; at least 1
	Retries int           // how many; also how often a container may crash
}

// DefaultBackoff returns the schedule of the kubelet's run-once mode
// (pkg/kubelet/runonce.go of Kubernetes 1.30): 1 s, doubled each time, 10 retries.
func DefaultBackoff() Backoff {
	return Backoff{Delay: time.Second, Factor: 2, Retries: 10}
}

// Validate returns every fault of the schedule, joined.
func (b Backoff) Validate() error {
	if b == (Backoff{}) {
		return nil
	}
	var errs []error
	if b.Delay < 0 {
		errs = append(errs, fmt.Errorf("retry delay %s: must not be negative", b.Delay))
	}
	if !(b.Factor >= 1) || math.IsInf(b.Factor, 0) {
		errs = append(errs, fmt.Errorf("retry factor %g: must be a number of at least 1", b.Factor))
	}
	if b.Retries < 0 {
		errs = append(errs, fmt.Errorf("%d retries: must not be negative", b.Retries))
	}
	return errors.Join(errs...)
}

// Delays yields the time to wait before each retry. A delay that would be longer than
// time.Duration can say stays at its longest.
func (b Backoff) Delays() iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		d := float64(b.Delay)
		for range b.Retries {
			wait := time.Duration(math.MaxInt64)
			if d < math.MaxInt64 {
				wait = time.Duration(d)
			}
			if !yield(wait) {
				return
			}
			d *= b.Factor
		}
	}
}
